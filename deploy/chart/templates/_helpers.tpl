{{- define "spillgate.selector" -}}
app.kubernetes.io/name: spillgate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "spillgate.metadata" -}}
name: {{ .Release.Name }}
labels:
  {{- include "spillgate.selector" . | nindent 2 }}
{{- end }}

{{- define "spillgate.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "spillgate.bytes" -}}
{{- if hasSuffix "Gi" . }}{{ mul (trimSuffix "Gi" .) 1073741824 }}{{ else }}{{ mul (trimSuffix "Mi" .) 1048576 }}{{ end }}
{{- end }}

{{/* The Secrets that are read at the start alone: a checksum of this starts the Pods again after a change. Empty where
helm renders without a cluster. The uid is a salt: readers of Pods cannot try passwords against the checksum. */}}
{{- define "spillgate.secrets" -}}
{{- range compact (list .Values.redis.existingSecret .Values.postgres.existingSecret (and .Values.model.baseUrl .Values.model.existingSecret)) }}
{{- with lookup "v1" "Secret" $.Release.Namespace . }}{{ .metadata.uid }}{{ .data | toJson }}{{ end }}
{{- end }}
{{- end }}

{{/* What fits into Redis: two fifths of it for bodies, which are counted before they are packed; three fifths for the
ledgers of all tenants, which count what they use or a little more. On PostgreSQL the ledger of a tenant has a bound. */}}
{{- define "spillgate.caps" -}}
{{- $memory := include "spillgate.bytes" .Values.redis.maxMemory | int64 }}
{{- $stored := .Values.quotas.storageBytes | int64 | default (div (mul $memory 2) 5) }}
{{- $ledger := div (mul $memory 3) 5 }}
- { name: SPILLGATE_STORAGE_MAX_BYTES, value: {{ $stored | quote }} }
- { name: SPILLGATE_TENANT_STORAGE_MAX_BYTES, value: {{ div (mul $stored .Values.quotas.tenantPercent) 100 | quote }} }
{{- if .Values.postgres.existingSecret }}
- { name: SPILLGATE_LEDGER_MAX_BYTES, value: {{ .Values.postgres.tenantBytes | int64 | quote }} }
{{- else }}
- { name: SPILLGATE_LEDGER_TOTAL_MAX_BYTES, value: {{ $ledger | quote }} }
- { name: SPILLGATE_LEDGER_MAX_BYTES, value: {{ div (mul $ledger .Values.quotas.tenantPercent) 100 | quote }} }
{{- end }}
{{- end }}
