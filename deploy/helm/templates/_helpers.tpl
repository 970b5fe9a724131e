{{- define "stint.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "stint.selector" -}}
app.kubernetes.io/name: stint
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "stint.labels" -}}
{{ include "stint.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "stint.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "stint.name" .) }}{{ else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- define "stint.several" -}}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicaCount) 1) }}yes{{ end }}
{{- end }}

{{- define "stint.config" -}}
{{- $store := .Values.config.store | default dict }}
{{- if and (include "stint.several" .) (hasPrefix "memory:" ($store.url | default "memory://")) }}
{{- fail "config.store.url is memory://, which each pod has for itself: several pods need one that they share, such as redis://redis:6379" }}
{{- end }}
{{- $admin := .Values.config.admin | default dict }}
{{- if and .Values.admin.expose (not $admin.tokens_file) }}
{{- fail "admin.expose needs config.admin.tokens_file, a file of secretName, such as /etc/stint/secrets/admin" }}
{{- end }}
{{- $config := deepCopy .Values.config }}
{{- if .Values.rules }}
{{- $config = set $config "rules_from" "/etc/stint/rules/rules.yaml" }}
{{- end }}
{{- toYaml $config }}
{{- end }}
