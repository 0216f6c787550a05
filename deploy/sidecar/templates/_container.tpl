{{/* A native sidecar: starts before the agent, stops after it, and lets a Job end. */}}
{{- define "spillgate-sidecar.container" -}}
{{- with index .Values "spillgate-sidecar" -}}
- name: spillgate
  {{- with .image }}
  image: {{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
  imagePullPolicy: {{ .pullPolicy }}
  {{- end }}
  restartPolicy: Always
  env:
    - { name: SPILLGATE_UDS, value: /run/spillgate/private/s.sock }
    # Prometheus cannot reach the socket.
    - { name: SPILLGATE_METRICS_ADDRESS, value: 0.0.0.0:9377 }
    # The accounting outlives the Pod, in its log.
    - { name: SPILLGATE_ACCOUNTING_EXPORT, value: "-" }
    # Half of the volume: a Pod that outgrows one is evicted, with all that it stored.
    - { name: SPILLGATE_STORAGE_MAX_BYTES, value: {{ include "spillgate-sidecar.half" .storage | quote }} }
    {{- range $name, $value := .settings }}
    - { name: {{ $name }}, value: {{ kindIs "string" $value | ternary $value ($value | toJson) | quote }} }
    {{- end }}
  ports:
    - { name: spill-metrics, containerPort: 9377 }
  startupProbe: # the agent starts once this has passed
    exec: { command: [spillgate, healthcheck, --uds, /run/spillgate/private/s.sock] }
    periodSeconds: 2
    timeoutSeconds: 10
    failureThreshold: 30
  readinessProbe:
    exec: { command: [spillgate, healthcheck, --uds, /run/spillgate/private/s.sock] }
    periodSeconds: 30
    timeoutSeconds: 10
  livenessProbe: # /livez, not readiness: a full disk does not get emptier by a restart
    exec:
      command:
        - python
        - -c
        - |
          import socket, sys
          with socket.socket(socket.AF_UNIX) as probe:
              probe.settimeout(5)
              probe.connect("/run/spillgate/private/s.sock")
              probe.sendall(b"GET /livez HTTP/1.0\r\nHost: localhost\r\n\r\n")
              sys.exit(b" 200 " not in probe.recv(64))
    periodSeconds: 30
    timeoutSeconds: 10
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: { drop: [ALL] }
  resources:
    {{- toYaml .resources | nindent 4 }}
  volumeMounts:
    - { name: spillgate-state, mountPath: /var/lib/spillgate }
    - { name: spillgate-socket, mountPath: /run/spillgate }
    - { name: spillgate-tmp, mountPath: /tmp }
{{- end }}
{{- end }}

{{- define "spillgate-sidecar.half" -}}
{{- if hasSuffix "Gi" . }}{{ mul (trimSuffix "Gi" .) 536870912 }}{{ else }}{{ mul (trimSuffix "Mi" .) 524288 }}{{ end }}
{{- end }}
