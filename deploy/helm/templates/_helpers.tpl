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

{{- define "stint.tls" -}}
{{- $tls := .Values.config.tls | default dict }}{{ if $tls.cert_file }}yes{{ end }}
{{- end }}

{{- define "stint.adminScheme" -}}
{{- $own := (.Values.config.admin_tls | default dict).cert_file }}
{{- if ne $own "off" }}{{ if or $own (include "stint.tls" .) }}https{{ else }}http{{ end }}{{ else }}http{{ end }}
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
{{- $api := .Values.config.api | default dict }}
{{- if and .Values.resp.port (not (or $api.tokens_file $api.open)) }}
{{- fail "resp.port needs config.api.tokens_file, a file of secretName, such as /etc/stint/secrets/api, or config.api.open: its commands name keys" }}
{{- end }}
{{- if and (include "stint.tls" .) (.Values.config.tls).client_ca_file }}
{{- fail "config.tls.client_ca_file asks everybody for a certificate, and the kubelet's probes have none: leave it out, and let grpc_tls, resp_tls and admin_tls ask for one" }}
{{- end }}
{{- range .Values.env }}
{{- if hasPrefix "STINT_TLS_" .name }}
{{- fail (printf "env has %s, of which probes know nothing: set config.tls" .name) }}
{{- end }}
{{- end }}
{{- if and .Values.serviceMonitor.tlsConfig (not (include "stint.tls" .)) }}
{{- fail "serviceMonitor.tlsConfig needs config.tls.cert_file: metrics are plain HTTP without it" }}
{{- end }}
{{- $envoy := .Values.config.envoy | default dict }}
{{- $xds := ($envoy.xds | default dict).server }}
{{- if and .Values.grpc.port (not (or .Values.grpc.domains $envoy.config $xds)) }}
{{- fail "grpc.port needs grpc.domains, or config.envoy.xds.server: without domains it limits nothing" }}
{{- end }}
{{- if and .Values.grpc.domains (not .Values.grpc.port) }}
{{- fail "grpc.domains needs grpc.port, such as 8081" }}
{{- end }}
{{- if and .Values.grpc.domains (or $envoy.config $xds) }}
{{- fail "grpc.domains is given beside config.envoy.config or config.envoy.xds.server: one of them has the domains" }}
{{- end }}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.from) }}
{{- fail "networkPolicy.enabled needs networkPolicy.from, such as [{namespaceSelector: {matchLabels: {limits: ask}}}]: an empty one is everybody" }}
{{- end }}
{{- $config := deepCopy .Values.config }}
{{- if .Values.grpc.domains }}
{{- $config = set $config "envoy" (set ($config.envoy | default dict) "config" "/etc/stint/domains") }}
{{- end }}
{{- if .Values.rules }}
{{- $config = set $config "rules_from" "/etc/stint/rules/rules.yaml" }}
{{- end }}
{{- toYaml $config }}
{{- end }}
