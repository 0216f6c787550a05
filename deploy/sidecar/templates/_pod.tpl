{{/* All that the Pod of an agent needs. A chart with initContainers or volumes of its own takes the parts. */}}
{{- define "spillgate-sidecar.pod" -}}
{{ include "spillgate-sidecar.security" . }}
initContainers:
  {{- include "spillgate-sidecar.container" . | nindent 2 }}
volumes:
  {{- include "spillgate-sidecar.volumes" . | nindent 2 }}
{{- end }}

{{- define "spillgate-sidecar.security" -}}
{{- with index .Values "spillgate-sidecar" -}}
automountServiceAccountToken: false
# A Service called spillgate would otherwise set SPILLGATE_PORT to an address.
enableServiceLinks: false
terminationGracePeriodSeconds: 45
securityContext:
  # One user for all containers: the socket lies in a directory that its owner alone may enter.
  runAsUser: {{ .user }}
  runAsGroup: {{ .user }}
  # Makes the volumes below writable for it.
  fsGroup: {{ .user }}
  runAsNonRoot: true
  seccompProfile: { type: RuntimeDefault }
{{- end }}
{{- end }}

{{- define "spillgate-sidecar.env" -}}
- { name: SPILLGATE_URL, value: "unix:/run/spillgate/private/s.sock" }
{{- end }}

{{- define "spillgate-sidecar.mounts" -}}
- { name: spillgate-socket, mountPath: /run/spillgate, readOnly: true }
{{- end }}

{{- define "spillgate-sidecar.volumes" -}}
{{- with index .Values "spillgate-sidecar" -}}
# Outlives a restart of the container, not the Pod. For handles that outlive the Pod: a
# persistentVolumeClaim of its own for each Pod, since one process owns a directory.
- name: spillgate-state
  emptyDir: { sizeLimit: {{ .storage }} }
- name: spillgate-socket
  emptyDir: { medium: Memory, sizeLimit: 1Mi }
- name: spillgate-tmp
  emptyDir: { sizeLimit: 256Mi }
{{- end }}
{{- end }}
