"""An OAuth 2 server: Authlib's, on Flask. It gives signed JWTs for client credentials, and publishes its key.

Before: a test says which clients there are, for how long a token is good, and when the server is out of order.
After: librdkafka asks it for tokens; Kafka asks it for the key, and validates them.
Source: RFC 6749, section 4.4 (client credentials); RFC 9068 (JWT access tokens); RFC 7517 (JWKS).
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from typing import Any, Self

with warnings.catch_warnings():  # Authlib warns of its own deprecated parts
    warnings.simplefilter("ignore")
    from authlib.integrations.flask_oauth2 import AuthorizationServer
    from authlib.oauth2.rfc6749 import ClientCredentialsGrant, ClientMixin
    from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
    from flask import Flask, Response, jsonify
    from joserfc import jwk
    from werkzeug.serving import make_server

AUDIENCE = "kafka"


class _Client(ClientMixin):  # type: ignore[misc]
    def __init__(self, name: str, secret: str) -> None:
        self._name, self._secret = name, secret

    def get_client_id(self) -> str:
        return self._name

    def get_allowed_scope(self, scope: str | None) -> str:
        return scope or "events"

    def check_client_secret(self, secret: str) -> bool:
        return self._secret == secret

    def check_endpoint_auth_method(self, method: str, endpoint: object) -> bool:
        return method == "client_secret_basic"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "client_credentials"


class _Grant(ClientCredentialsGrant):  # type: ignore[misc]
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic",)


class TokenServer:
    """Serves while a `with` lasts."""

    def __init__(self, clients: Mapping[str, str], lifetime_s: int) -> None:
        """`clients`: the secret of each client."""
        self.is_out_of_order = False
        self.given = 0
        """How many tokens it has given."""
        self._key = jwk.RSAKey.generate_key(2048, {"kid": "first", "use": "sig"})
        app = Flask(__name__)
        server, key = self, self._key

        class Generator(JWTBearerTokenGenerator):  # type: ignore[misc]
            def get_jwks(self) -> Any:
                return key

            def get_audiences(self, *_: object) -> str:
                return AUDIENCE

        found = {name: _Client(name, secret) for name, secret in clients.items()}
        oauth = AuthorizationServer(app, query_client=found.get, save_token=lambda *_: None)
        oauth.register_grant(_Grant)
        self._http = make_server("127.0.0.1", 0, app, threaded=True)
        self.issuer = f"http://127.0.0.1:{self._http.server_port}"
        made = Generator(self.issuer, expires_generator=lambda *_: lifetime_s)
        oauth.register_token_generator("default", made)

        def token() -> Any:
            if server.is_out_of_order:
                return Response(status=503)
            answer = oauth.create_token_response()
            server.given += answer.status_code == 200
            return answer

        def jwks() -> Any:
            return jsonify({"keys": [key.as_dict(private=False)]})

        app.add_url_rule("/token", view_func=token, methods=["POST"])
        app.add_url_rule("/jwks", view_func=jwks)

    @property
    def url(self) -> str:
        """The token endpoint."""
        return f"{self.issuer}/token"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
