{{/* A value as TOML writes it. Helm's numbers are floats, and its own toToml would write 19000000000 as 1.9e+10. */}}
{{- define "cdcd.tomlValue" -}}
{{- if kindIs "map" . -}}
{ {{- range $index, $name := keys . | sortAlpha }}{{ if $index }},{{ end }} {{ $name | toJson }} = {{ include "cdcd.tomlValue" (get $ $name) }}{{ end }} }
{{- else if kindIs "slice" . -}}
[{{ range $index, $each := . }}{{ if $index }}, {{ end }}{{ include "cdcd.tomlValue" $each }}{{ end }}]
{{- else if kindIs "int64" . -}}
{{ . }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{ int64 . }}
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}

{{/* The lines of a table of TOML, each after a line break. */}}
{{- define "cdcd.tomlTable" -}}
{{- range $name := keys . | sortAlpha }}
{{- $value := get $ $name }}
{{- if not (kindIs "invalid" $value) }}
{{ $name }} = {{ include "cdcd.tomlValue" $value }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
cdcd.toml of an instance: what the chart sets, and `config` over it. The spool is smaller than its volume: cdcd handles a
full spool, the kubelet would evict the pod. A restart does not repair Kafka: stalled_after_s is longer than brokers are away.
*/}}
{{- define "cdcd.toml" -}}
{{- $own := dict
    "spool" (dict "directory" "/var/lib/cdcd/spool" "bytes_max" (mul 950000000 (trimSuffix "Gi" .spool.size | int64)))
    "log" (dict "format" "json")
    "monitoring" (dict "stalled_after_s" 600) -}}
{{- $config := mergeOverwrite $own (deepCopy .config) -}}
{{- $_ := dig "sink" "bootstrap_servers" "" $config | required "Set config.sink.bootstrap_servers: the first brokers to contact" -}}
secrets_dir = "/run/secrets/cdcd"
{{- range $section := keys $config | sortAlpha }}
{{- $settings := get $config $section }}
{{- if kindIs "slice" $settings }}
{{- range $entry := $settings }}

[[{{ $section }}]]
{{- include "cdcd.tomlTable" $entry }}
{{- end }}
{{- else }}

[{{ $section }}]
{{- include "cdcd.tomlTable" $settings }}
{{- end }}
{{- end }}
{{ end -}}
