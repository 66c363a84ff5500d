{{- define "roquet.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "roquet.labels" -}}
app.kubernetes.io/name: roquet
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "roquet.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* Each name server by its own name: a broker registers at all of them. */}}
{{- define "roquet.nameServers" -}}
{{- $name := include "roquet.name" . -}}
{{- $hosts := list -}}
{{- range $i := until (int .Values.nameServers.replicas) -}}
{{- $hosts = append $hosts (printf "%s-namesrv-%d.%s-namesrv:9876" $name $i $name) -}}
{{- end -}}
{{ join ";" $hosts }}
{{- end }}

{{- define "roquet.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "roquet.container" -}}
image: {{ include "roquet.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "roquet.probes" -}}
livenessProbe:
  httpGet: {path: /livez, port: health}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 5
  timeoutSeconds: 3
{{- end }}
