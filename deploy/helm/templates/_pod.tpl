{{/* The parts of a pod that runs cdcd, be it the daemon or a Job. They take a dict of `root` and `instance`. */}}

{{- define "cdcd.podHead" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- if or .instance.serviceAccount.create .instance.serviceAccount.name }}
serviceAccountName: {{ include "cdcd.serviceAccountName" .instance }}
{{- end }}
{{- with .instance.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  {{- toYaml .instance.podSecurityContext | nindent 2 }}
{{- with .instance.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .instance.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .instance.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .instance.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{- define "cdcd.container" -}}
name: cdcd
image: {{ include "cdcd.image" . }}
imagePullPolicy: {{ .instance.image.pullPolicy }}
{{- with .instance.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .instance.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .instance.securityContext | nindent 2 }}
volumeMounts:
  - name: config
    mountPath: /etc/cdcd
    readOnly: true
  - name: secret
    mountPath: /run/secrets/cdcd
    readOnly: true
  - name: spool
    mountPath: /var/lib/cdcd
  {{- with .instance.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* `config` is the name of the ConfigMap. */}}
{{- define "cdcd.volumes" -}}
- name: config
  configMap:
    name: {{ .config }}
- name: secret
{{- $secrets := .instance.existingSecrets | default (list (dict "name" .instance.fullname)) }}
{{- if eq (len $secrets) 1 }}
  secret:
    secretName: {{ (first $secrets).name }}
    defaultMode: 0440
    {{- if and (not .instance.existingSecrets) (dig "source" "dsn" "" .instance.config) }}
    optional: true
    {{- end }}
    {{- with (first $secrets).items }}
    items:
      {{- toYaml . | nindent 6 }}
    {{- end }}
{{- else }}
  projected:
    defaultMode: 0440
    sources:
      {{- range $secrets }}
      - secret:
          {{- toYaml . | nindent 10 }}
      {{- end }}
{{- end }}
- name: spool
  emptyDir:
    sizeLimit: {{ .instance.spool.size }}
{{- with .instance.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
