{{- define "uvmd.config" -}}
10-kubernetes.toml: |
  # The API and the page stay on loopback: kubectl port-forward reaches them.
  [metrics]
  listen = "0.0.0.0:{{ .Values.metrics.port }}"
  {{- if .Values.metrics.webConfigSecret }}
  web_config_file = "/etc/uvmd/web/web.yml"

  # As Kubernetes mounts secrets.
  [auth]
  token_file_group_readable = true
  {{- end }}
  {{- if .Values.fleet.enabled }}

  [owners]
  names = "/run/uvmd/fleet/owners.json"
  {{- end }}
  {{- if eq .Values.mode "act" }}

  # Reports what it would do. It acts only where another file, an override or a UvmPolicy has mode "act".
  [policy]
  enabled = true
  mode = "shadow"
  {{- if .Values.fleet.enabled }}
  # Policies of the cluster, as uvmd-fleet compiles them.
  fleet_overrides_file = "/run/uvmd/fleet/overrides.json"
  {{- end }}
  {{- end }}
{{- range $name, $text := .Values.config }}
{{ $name }}: |
  {{- $text | trim | nindent 2 }}
{{- end }}
{{- end }}
