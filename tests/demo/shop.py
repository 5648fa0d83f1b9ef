"""A small shop that is always a little busy: the quickstart's schema and workload.

After: `cdcd run` streams the changes to Kafka.

An order and its items are inserted in one transaction. Orders are paid, shipped or cancelled, and cancelled orders are
deleted with their items. Customers sign up and move.
"""

from __future__ import annotations

import random
import threading
import time
from decimal import Decimal

import psycopg

SCHEMA = """
CREATE TYPE status AS ENUM ('placed', 'paid', 'shipped', 'cancelled');
CREATE TABLE customers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    address jsonb NOT NULL,
    since timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE products (
    sku text PRIMARY KEY,
    price numeric(10,2) NOT NULL,
    tags text[] NOT NULL DEFAULT '{}',
    stock integer NOT NULL
);
CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES customers ON DELETE CASCADE,
    status status NOT NULL DEFAULT 'placed',
    total numeric(12,2) NOT NULL,
    placed timestamptz NOT NULL DEFAULT now(),
    note text
);
CREATE TABLE order_items (
    order_id bigint REFERENCES orders ON DELETE CASCADE,
    line smallint,
    sku text NOT NULL REFERENCES products,
    quantity integer NOT NULL,
    PRIMARY KEY (order_id, line)
);
"""

TABLES = ("customers", "products", "orders", "order_items")
NAMES = ("Ada", "Grace", "Edsger", "Barbara", "Donald", "Margaret", "Niklaus", "Frances", "Tony", "Radia")
STREETS = ("Baker Street", "Rue de la Paix", "Unter den Linden", "Via Appia", "丸の内", "Невский проспект")
GOODS = ("teapot", "lantern", "kite", "globe", "abacus", "compass", "hourglass", "kettle")


def create(dsn: str) -> None:
    """Make the shop's tables in the database, if they do not exist."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        if connection.execute("SELECT to_regclass('public.orders')").fetchone() == (None,):
            connection.execute(SCHEMA)


class Workload(threading.Thread):
    """Keeps the shop busy until `stop`; `failure` says why if it ended by itself."""

    def __init__(self, dsn: str, rate: float = 20.0, seed: int | None = None) -> None:
        """Take the database, and the most transactions a second."""
        super().__init__(name="shop", daemon=True)
        self.failure: Exception | None = None
        self._dsn = dsn
        self._pause_s = 1 / rate
        self._random = random.Random(seed)
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End after the present transaction."""
        self._stopped.set()
        self.join(10)

    def run(self) -> None:
        """Fill the shelves and serve customers."""
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                self._open(connection)
                due = time.monotonic()
                while not self._stopped.is_set():
                    with connection.transaction():
                        self._serve(connection)
                    due = max(due + self._pause_s, time.monotonic() - 1)  # after a stall, catch up at most a second
                    self._stopped.wait(due - time.monotonic())
        except psycopg.Error as failure:
            self.failure = failure

    def _open(self, connection: psycopg.Connection) -> None:
        with connection.transaction():
            for sku in GOODS:
                price = Decimal(self._random.randrange(199, 9999)) / 100
                connection.execute(
                    "INSERT INTO products VALUES (%s, %s, %s, 1000) ON CONFLICT DO NOTHING",
                    [sku, price, self._random.sample(["new", "sale", "fragile", "gift"], 2)],
                )
            for _ in range(20):
                self._sign_up(connection)

    def _serve(self, connection: psycopg.Connection) -> None:
        happening = self._random.random()
        if happening < 0.45:
            self._order(connection)
        elif happening < 0.85:
            self._progress(connection)
        elif happening < 0.92:
            self._sign_up(connection)
        elif happening < 0.97:
            self._move(connection)
        elif happening < 0.99:
            connection.execute("DELETE FROM orders WHERE id = (SELECT min(id) FROM orders WHERE status = 'cancelled')")
        else:
            connection.execute("UPDATE products SET stock = 1000 WHERE stock < 500")

    def _order(self, connection: psycopg.Connection) -> None:
        goods = self._random.sample(GOODS, self._random.randint(1, 4))
        quantities = [self._random.randint(1, 3) for _ in goods]
        row = connection.execute(
            "INSERT INTO orders (customer_id, total, note) SELECT c.id, sum(p.price * q.n), %s"
            " FROM (SELECT id FROM customers ORDER BY random() LIMIT 1) c,"
            " unnest(%s::text[], %s::int[]) q(sku, n) JOIN products p USING (sku) GROUP BY c.id RETURNING id",
            [self._random.choice([None, None, "ring twice", "no hurry"]), goods, quantities],
        ).fetchone()
        if row is None:
            return
        for line, (sku, quantity) in enumerate(zip(goods, quantities, strict=True), 1):
            connection.execute("INSERT INTO order_items VALUES (%s, %s, %s, %s)", [row[0], line, sku, quantity])
            connection.execute("UPDATE products SET stock = stock - %s WHERE sku = %s", [quantity, sku])

    def _progress(self, connection: psycopg.Connection) -> None:
        before, after = self._random.choice([("placed", "paid"), ("paid", "shipped"), ("placed", "cancelled")])
        connection.execute(
            "UPDATE orders SET status = %s WHERE id = (SELECT min(id) FROM orders WHERE status = %s)", [after, before]
        )

    def _sign_up(self, connection: psycopg.Connection) -> None:
        name = f"{self._random.choice(NAMES)} {self._random.randrange(1000)}"
        connection.execute(
            "INSERT INTO customers (name, address)"
            " VALUES (%s, jsonb_build_object('street', %s::text, 'number', %s::int))",
            [name, self._random.choice(STREETS), self._random.randrange(1, 200)],
        )

    def _move(self, connection: psycopg.Connection) -> None:
        connection.execute(
            "UPDATE customers SET address = jsonb_set(address, '{street}', to_jsonb(%s::text))"
            " WHERE id = (SELECT id FROM customers ORDER BY random() LIMIT 1)",
            [self._random.choice(STREETS)],
        )
