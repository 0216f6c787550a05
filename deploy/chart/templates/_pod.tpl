{{- define "spillgate.environment" -}}
- { name: SPILLGATE_HOST, value: 0.0.0.0 }
# For commands in the Pod, `kubectl exec … spillgate stats`: its port is that of this replica alone.
- { name: SPILLGATE_URL, value: "http://127.0.0.1:8377" }
- { name: SPILLGATE_API_KEYS_FILE, value: /etc/spillgate/keys/keys }
# A file, since the URL holds a password: the environment is inherited, and shown by many tools.
- { name: SPILLGATE_STORAGE_URL_FILE, value: /etc/spillgate/redis/storage-url }
{{- if .Values.postgres.existingSecret }}
- { name: SPILLGATE_LEDGER_URL_FILE, value: /etc/spillgate/postgres/ledger-url }
{{- else if .Values.redis.ledgerUrlKey }}
- { name: SPILLGATE_LEDGER_URL_FILE, value: /etc/spillgate/redis/ledger-url }
{{- end }}
{{- with .Values.encryption }}{{ if .existingSecret }}
- { name: SPILLGATE_STORAGE_KEY_FILE, value: /etc/spillgate/encryption/keys }
{{- end }}{{ end }}
# Derived from redis.maxMemory ({{ .Values.redis.maxMemory }}); the share of a tenant is {{ .Values.quotas.tenantPercent }} %.
{{- include "spillgate.caps" . }}
- { name: SPILLGATE_MAX_SESSIONS, value: {{ .Values.quotas.maxSessions | int64 | quote }} }
- { name: SPILLGATE_TENANT_REQUESTS_PER_SECOND, value: {{ .Values.quotas.requestsPerSecond | quote }} }
- { name: SPILLGATE_TENANT_LLM_USD_PER_DAY, value: {{ .Values.quotas.llmUsdPerDay | quote }} }
- { name: SPILLGATE_RETENTION_SECONDS, value: {{ .Values.retention.resultSeconds | int64 | quote }} }
- { name: SPILLGATE_LEDGER_RETENTION_SECONDS, value: {{ .Values.retention.ledgerSeconds | int64 | quote }} }
{{- with .Values.accountingExport }}
- { name: SPILLGATE_ACCOUNTING_EXPORT, value: {{ . | quote }} }
{{- end }}
- { name: SPILLGATE_POLICY_FILE, value: /etc/spillgate/policy/policy.toml }
{{- with .Values.model }}{{ if .baseUrl }}
- { name: SPILLGATE_LLM_BASE_URL, value: {{ .baseUrl | quote }} }
- { name: SPILLGATE_LLM_MODELS, value: {{ join "," .names | quote }} }
{{- if .existingSecret }}
- { name: SPILLGATE_LLM_API_KEY_FILE, value: /etc/spillgate/model/api-key }
{{- end }}
{{- end }}{{ end }}
{{- range $name, $value := .Values.settings }}
- { name: {{ $name }}, value: {{ kindIs "string" $value | ternary $value ($value | toJson) | quote }} }
{{- end }}
{{- end }}

{{- define "spillgate.volumes" -}}
- name: keys
  secret:
    secretName: {{ .Values.keys.existingSecret }}
    defaultMode: 0440
    items: [{ key: {{ .Values.keys.key }}, path: keys }]
- name: redis
  secret:
    secretName: {{ .Values.redis.existingSecret }}
    defaultMode: 0440
    items:
      - { key: {{ .Values.redis.storageUrlKey }}, path: storage-url }
      {{- with .Values.redis.ledgerUrlKey }}
      - { key: {{ . }}, path: ledger-url }
      {{- end }}
{{- with .Values.postgres }}{{ if .existingSecret }}
- name: postgres
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: 0440
    items: [{ key: {{ .key }}, path: ledger-url }]
{{- end }}{{ end }}
- name: policy
  configMap: { name: {{ .Release.Name }}-policy }
{{- with .Values.model }}{{ if and .baseUrl .existingSecret }}
- name: model
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: 0440
    items: [{ key: {{ .key }}, path: api-key }]
{{- end }}{{ end }}
{{- with .Values.encryption }}{{ if .existingSecret }}
- name: encryption
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: 0440
    items: [{ key: {{ .key }}, path: keys }]
{{- end }}{{ end }}
{{- end }}
