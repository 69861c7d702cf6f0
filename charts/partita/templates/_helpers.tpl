{{- define "partita.fullname" -}}
{{- if contains "partita" .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-partita" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "partita.selectorLabels" -}}
app.kubernetes.io/name: partita
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "partita.labels" -}}
{{ include "partita.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "partita.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "partita.fullname" .) -}}
{{- else -}}
{{- required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "partita.modelPolicy" -}}
{{- $policy := dict "requireDigest" .Values.models.requireDigest -}}
{{- with .Values.models.allowedModules }}{{ $_ := set $policy "modules" . }}{{ end -}}
{{- with .Values.models.allowedFiles }}{{ $_ := set $policy "files" . }}{{ end -}}
{{- $policy | toJson -}}
{{- end -}}
