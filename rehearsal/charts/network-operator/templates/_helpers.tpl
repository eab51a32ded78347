{{/* Object names follow the release: a release whose name holds the chart's name gives it, else both are joined. */}}
{{- define "network-operator.fullname" -}}
{{- if .Values.operator.fullnameOverride }}{{ .Values.operator.fullnameOverride }}
{{- else if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name }}{{ end -}}
{{- end }}

{{- define "network-operator.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Names become objects here, so a list of objects gives a nested name that the API refuses, as with the vendor's chart. The
operator's own list takes the place of the common one. */}}
{{- define "network-operator.pullSecrets" -}}
{{- with .Values.operator.imagePullSecrets | default .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | toJson }}
{{- end }}
{{- end }}
{{- end }}
