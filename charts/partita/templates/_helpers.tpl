{{- define "partita.fullname" -}}
{{- if contains "partita" .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-partita" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The namespaces whose sessions are served, as JSON; empty for all. */}}
{{- define "partita.namespaces" -}}
{{- if and (eq .Values.scope "Namespaces") (not .Values.namespaces) -}}
{{- fail "namespaces is empty: name those whose sessions the operator serves, such as [default], or set scope to Cluster for all" -}}
{{- end -}}
{{- ternary .Values.namespaces list (eq .Values.scope "Namespaces") | toJson -}}
{{- end -}}

{{- define "partita.selectorLabels" -}}
app.kubernetes.io/name: partita
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "partita.labels" -}}
{{ include "partita.selectorLabels" . }}
{{ include "partita.versionLabels" . }}
{{- end -}}

{{- define "partita.versionLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "partita.consoleName" -}}
{{- printf "%s-console" (include "partita.fullname" . | trunc 55 | trimSuffix "-") -}}
{{- end -}}

{{- define "partita.consoleSelectorLabels" -}}
app.kubernetes.io/name: partita
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: console
{{- end -}}

{{- define "partita.consoleLabels" -}}
{{ include "partita.consoleSelectorLabels" . }}
{{ include "partita.versionLabels" . }}
{{- end -}}

{{/* Rights of the console in the namespaces of sessions. */}}
{{- define "partita.consoleRules" -}}
- apiGroups: [partita.dev]
  resources: [inferencesessions, pipelineplans]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [list]
{{- end -}}

{{- define "partita.redisName" -}}
{{- printf "%s-redis" (include "partita.fullname" . | trunc 46 | trimSuffix "-") -}}
{{- end -}}

{{- define "partita.redisSelectorLabels" -}}
app.kubernetes.io/name: partita
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: redis
{{- end -}}

{{- define "partita.redisLabels" -}}
{{ include "partita.redisSelectorLabels" . }}
{{ include "partita.versionLabels" . }}
{{- end -}}

{{/* Address of the Redis of Ray's heads: the chart's own, or the one of the values; empty without a Redis. */}}
{{- define "partita.redisAddress" -}}
{{- if .Values.redis.enabled -}}
{{- printf "%s.%s.svc:6379" (include "partita.redisName" .) .Release.Namespace -}}
{{- else -}}
{{- .Values.kuberay.redisAddress -}}
{{- end -}}
{{- end -}}

{{/* Name of the Secret with its password; empty if the operator does not know the password. */}}
{{- define "partita.redisPasswordSecret" -}}
{{- .Values.kuberay.redisPasswordSecret.name | default (ternary (include "partita.redisName" .) "" .Values.redis.enabled) -}}
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

{{/* The operator's config file: its settings, without what only the chart uses, and with the Lease of the release. */}}
{{- define "partita.config" -}}
{{- $config := pick .Values "defaultEngine" "resyncSeconds" "transport" "exposure" "clients" "mig" "models" "requestLog" "podTemplates" "profiling" "planning" "tracing" "logging" "health" -}}
{{- $_ := set $config "namespaces" (include "partita.namespaces" . | fromJsonArray) -}}
{{- $_ := set $config "leaderElection" (merge (dict "namespace" .Release.Namespace "name" (include "partita.fullname" .)) .Values.leaderElection) -}}
{{- $_ := set $config "ray" (omit .Values.ray "tokenSecret" "tokensSecret") -}}
{{- $kuberay := omit .Values.kuberay "tokenSecret" "redisPasswordSecret" -}}
{{- $_ := set $config "kuberay" (set $kuberay "redisAddress" (include "partita.redisAddress" .)) -}}
{{- $_ := set $config "metrics" (pick .Values.metrics "port") -}}
{{- $_ := set $config "admission" (pick .Values.admission "enabled" "port" "clientCa") -}}
{{- $config | toYaml -}}
{{- end -}}

{{/* Rights in the namespaces of sessions. */}}
{{- define "partita.sessionRules" -}}
# Sessions: the operator reads them and patches their finalizers.
- apiGroups: [partita.dev]
  resources: [inferencesessions]
  verbs: [get, list, watch, patch]
- apiGroups: [partita.dev]
  resources: [pipelineplans]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [partita.dev]
  resources: [inferencesessions/status, pipelineplans/status]
  verbs: [get, patch]
# Plans have their session as owner, with blockOwnerDeletion.
- apiGroups: [partita.dev]
  resources: [inferencesessions/finalizers]
  verbs: [update]
# Profiles are ConfigMaps.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- with .Values.clients.allowedSecrets }}
# Sessions authenticate their clients by API keys.
- apiGroups: [""]
  resources: [secrets]
  resourceNames: {{ toJson . }}
  verbs: [get]
{{- end }}
{{- if .Values.kuberay.image }}
# Sessions with engine.type KubeRay run in a RayService of their namespace. The operator scales running RayClusters.
- apiGroups: [ray.io]
  resources: [rayservices]
  verbs: [get, list, create, patch, delete]
- apiGroups: [ray.io]
  resources: [rayclusters]
  verbs: [get, list, patch]
# Each of these sessions has a Service, and EndpointSlices for its frontends' own ports.
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch, create, patch, delete]
{{- if .Values.exposure.allowedIngressClasses }}
# Sessions may have an Ingress.
- apiGroups: [networking.k8s.io]
  resources: [ingresses]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
{{- if .Values.exposure.allowedGateways }}
# Sessions may have routes of a Gateway.
- apiGroups: [gateway.networking.k8s.io]
  resources: [httproutes, grpcroutes]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
{{- with .Values.exposure.checkedTlsSecrets }}
# To see whether the Secret with an Ingress's certificate exists.
- apiGroups: [""]
  resources: [secrets]
  resourceNames: {{ toJson . }}
  verbs: [get]
{{- end }}
# Worker groups with several pods have a PodDisruptionBudget.
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, create, patch, delete]
{{- $token := and (eq .Values.kuberay.authentication "Token") (not .Values.kuberay.authSecret) }}
{{- $password := and (include "partita.redisAddress" .) (include "partita.redisPasswordSecret" .) (not .Values.kuberay.redisSecret) }}
{{- $certificate := and .Values.kuberay.transportTls (not .Values.kuberay.transportTlsSecret) }}
{{- if or $token $password $certificate }}
# The token of the namespace's Ray clusters, the certificate of their pods, and the password of their heads' Redis. The
# operator creates the Secret by server-side apply, to which the name applies, too.
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [partita-ray]
  verbs: [get, create, patch, delete]
{{- end }}
{{- end }}
{{- if or .Values.profiling.image .Values.kuberay.image }}
# Models are profiled in Jobs. The operator reads the result from the end of the log.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, create, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
# The template of the claims of a pool with devices.
- apiGroups: [resource.k8s.io]
  resources: [resourceclaimtemplates]
  verbs: [create, patch]
{{- end }}
{{- end -}}
