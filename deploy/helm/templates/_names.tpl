{{/* The base of all names: the release, and the chart if the release does not name it. */}}
{{- define "cdcd.base" -}}
{{- $chart := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $chart .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $chart | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/*
The instances, as JSON: for each the values in force, with `fullname`. One without an entry of `instances`; else an entry
overrides the other values.
*/}}
{{- define "cdcd.instances" -}}
{{- $base := include "cdcd.base" . -}}
{{- $shared := omit .Values "instances" -}}
{{- $found := list -}}
{{- if .Values.instances -}}
{{- range .Values.instances -}}
{{- $name := printf "%s-%s" $base .name -}}
{{- if gt (len $name) 51 }}{{ fail (printf "The name %s is longer than 51 characters: the Jobs have longer ones" $name) }}{{ end -}}
{{- $found = append $found (mergeOverwrite (deepCopy $shared) (deepCopy (omit . "name")) (dict "fullname" $name)) -}}
{{- end -}}
{{- else -}}
{{- $found = append $found (mergeOverwrite (deepCopy $shared) (dict "fullname" $base)) -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* What all objects of an instance have. Takes a dict of `root` and `instance`. */}}
{{- define "cdcd.labels" -}}
app.kubernetes.io/name: cdcd
app.kubernetes.io/instance: {{ .instance.fullname }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* The same for what belongs to all instances. */}}
{{- define "cdcd.sharedLabels" -}}
{{ include "cdcd.labels" (dict "root" . "instance" (dict "fullname" (include "cdcd.base" .))) }}
{{- end -}}

{{/* The labels by which the pods of an instance are found: no other instance has them. */}}
{{- define "cdcd.selector" -}}
app.kubernetes.io/name: cdcd
app.kubernetes.io/instance: {{ .fullname }}
app.kubernetes.io/component: daemon
{{- end -}}

{{- define "cdcd.serviceAccountName" -}}
{{- .serviceAccount.name | default (ternary .fullname "default" .serviceAccount.create) -}}
{{- end -}}

{{- define "cdcd.image" -}}
{{- $image := .instance.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* "true" if the settings have a log-in that may ask a server of tokens; else empty. Takes an instance. */}}
{{- define "cdcd.asksForTokens" -}}
{{- $source := .config.source | default dict -}}
{{- $sink := .config.sink | default dict -}}
{{- $asks := or $source.password_command $source.password_function $sink.token_function -}}
{{- range $name, $_ := $sink.librdkafka -}}
{{- if hasPrefix "sasl.oauthbearer." $name }}{{ $asks = true }}{{ end -}}
{{- end -}}
{{- if $asks }}true{{ end -}}
{{- end -}}
