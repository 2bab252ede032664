{{/* Name of all objects: that of the release, where it has "uvmd" in it. */}}
{{- define "uvmd.name" -}}
{{- if contains "uvmd" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-uvmd" (.Release.Name | trunc 35 | trimSuffix "-") }}{{ end }}
{{- end }}

{{/* Labels by which pods are selected; they never change. */}}
{{- define "uvmd.selector" -}}
app.kubernetes.io/name: uvmd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "uvmd.labels" -}}
{{ include "uvmd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Image by digest, or by tag: (list image suffix root). */}}
{{- define "uvmd.image" -}}
{{- $image := index . 0 }}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}{{ else }}{{ $image.repository }}:{{ $image.tag | default (index . 2).Chart.AppVersion }}{{ index . 1 }}{{ end }}
{{- end }}

{{/* Rules and dashboards with the names of this installation: (list text root). */}}
{{- define "uvmd.named" -}}
{{- $monitoring := (index . 1).Values.monitoring }}
{{- index . 0 | replace "@job@" $monitoring.job | replace "@cluster@" $monitoring.clusterLabel | replace "@docs@" $monitoring.docs }}
{{- end }}
