{{- define "sriov-network-operator.fullname" -}}
{{ printf "%s-sriov-network-operator" .Release.Name }}
{{- end }}

{{- define "sriov-network-operator.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Names become objects here, as in the parent. */}}
{{- define "sriov-network-operator.pullSecrets" -}}
{{- with . }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | toJson }}
{{- end }}
{{- end }}
{{- end }}
