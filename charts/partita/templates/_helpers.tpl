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

{{- define "partita.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "partita.modelPolicy" -}}
{{- $policy := dict "requireDigest" .Values.models.requireDigest -}}
{{- with .Values.models.allowedModules }}{{ $_ := set $policy "modules" . }}{{ end -}}
{{- with .Values.models.allowedFiles }}{{ $_ := set $policy "files" . }}{{ end -}}
{{- $policy | toJson -}}
{{- end -}}

{{/* The runtime environment of frontends and replicas, with what tracing adds to its variables. */}}
{{- define "partita.runtimeEnv" -}}
{{- $environment := deepCopy .Values.ray.runtimeEnv -}}
{{- with .Values.tracing.endpoint -}}
{{- $tracing := dict "OTEL_EXPORTER_OTLP_ENDPOINT" . "OTEL_TRACES_SAMPLER" "parentbased_traceidratio" "OTEL_TRACES_SAMPLER_ARG" (toString $.Values.tracing.ratio) -}}
{{- $_ := set $environment "env_vars" (merge (dict) ($environment.env_vars | default dict) $tracing) -}}
{{- end -}}
{{- $environment | toJson -}}
{{- end -}}

{{/* Rights in the namespaces with sessions. */}}
{{- define "partita.sessionRules" -}}
# What people write is read; finalizers are patched.
- apiGroups: [partita.dev]
  resources: [inferencesessions]
  verbs: [get, list, watch, patch]
- apiGroups: [partita.dev]
  resources: [pipelineplans]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [partita.dev]
  resources: [inferencesessions/status, pipelineplans/status]
  verbs: [get, patch]
# Plans are owned by their session and hold back its deletion.
- apiGroups: [partita.dev]
  resources: [inferencesessions/finalizers]
  verbs: [update]
# Profiles are kept in ConfigMaps.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- if .Values.kuberay.image }}
# Sessions of engine.type KubeRay run in a RayService of their namespace; running RayClusters are scaled.
- apiGroups: [ray.io]
  resources: [rayservices]
  verbs: [get, list, create, patch, delete]
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [get, patch]
{{- end }}
{{- if or .Values.profiling.image .Values.kuberay.image }}
# Models are profiled in Jobs; the result is the end of the log.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, create, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
{{- end }}
{{- end -}}
