// Package validate_test checks the manifests beside it: each object is decoded strictly into Kubernetes' own types, so that an unknown or
// misplaced key fails, and what refers to something else finds it.
package validate_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// secrets are made by hand: docs/kubernetes.md.
var secrets = []string{"monolith-tls", "monolith-token"}

// objects is what the manifests hold.
type objects struct {
	services []corev1.Service
	names    map[string]bool // kind/name
	pods     []pod
}

// pod is a template of pods.
type pod struct {
	owner    string
	template corev1.PodTemplateSpec
	selector *metav1.LabelSelector
	claims   []corev1.PersistentVolumeClaim
}

// read decodes all manifests. Errors are reported to t.
func read(t *testing.T, docs [][]byte) (o objects) {
	t.Helper()
	o.names = map[string]bool{}
	for _, doc := range docs {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(doc, &meta); err != nil {
			t.Errorf("%v in %s", err, doc)
			continue
		}
		var name string
		decode := func(into metav1.Object) {
			if err := yaml.UnmarshalStrict(doc, into); err != nil {
				t.Errorf("%s: %v", meta.Kind, err)
			}
			name = into.GetName()
		}
		switch meta.APIVersion + "/" + meta.Kind {
		case "v1/ConfigMap":
			decode(&corev1.ConfigMap{})
		case "v1/PersistentVolumeClaim":
			decode(&corev1.PersistentVolumeClaim{})
		case "policy/v1/PodDisruptionBudget":
			decode(&policyv1.PodDisruptionBudget{})
		case "v1/Service":
			var s corev1.Service
			decode(&s)
			o.services = append(o.services, s)
		case "apps/v1/StatefulSet":
			var s appsv1.StatefulSet
			decode(&s)
			o.pods = append(o.pods, pod{name, s.Spec.Template, s.Spec.Selector, s.Spec.VolumeClaimTemplates})
			if !o.names["Service/"+s.Spec.ServiceName] {
				t.Errorf("StatefulSet %s: no service %q before it", name, s.Spec.ServiceName)
			}
		case "apps/v1/Deployment":
			var d appsv1.Deployment
			decode(&d)
			o.pods = append(o.pods, pod{name, d.Spec.Template, d.Spec.Selector, nil})
		case "batch/v1/Job":
			var j batchv1.Job
			decode(&j)
			o.pods = append(o.pods, pod{name, j.Spec.Template, nil, nil})
		default:
			t.Errorf("no type is known for %s %s", meta.APIVersion, meta.Kind)
		}
		if key := meta.Kind + "/" + name; name == "" || o.names[key] {
			t.Errorf("%s has no name of its own", key)
		} else {
			o.names[key] = true
		}
	}
	return o
}

// documents are those of all manifests.
func documents(t *testing.T) (out [][]byte) {
	t.Helper()
	files, err := filepath.Glob("../*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, bytes.Split(b, []byte("\n---\n"))...)
	}
	return out
}

// TestManifests decodes the manifests strictly and follows their references.
func TestManifests(t *testing.T) {
	o := read(t, documents(t))
	if len(o.pods) != 5 || len(o.services) != 4 {
		t.Errorf("%d kinds of pods and %d services", len(o.pods), len(o.services))
	}
	for _, p := range o.pods {
		p.check(t, o.names)
	}
	for _, s := range o.services {
		i := slices.IndexFunc(o.pods, func(p pod) bool { return within(s.Spec.Selector, p.template.Labels) })
		if i < 0 {
			t.Errorf("service %s selects no pod: %v", s.Name, s.Spec.Selector)
			continue
		}
		for _, port := range s.Spec.Ports {
			if !o.pods[i].ports()[port.TargetPort.String()] {
				t.Errorf("service %s: %s has no port %s", s.Name, o.pods[i].owner, port.TargetPort.String())
			}
		}
	}
}

func within(part, whole map[string]string) bool {
	for k, v := range part {
		if whole[k] != v {
			return false
		}
	}
	return len(part) > 0
}

// ports are the names of the pod's ports.
func (p pod) ports() map[string]bool {
	out := map[string]bool{}
	for _, c := range p.template.Spec.Containers {
		for _, port := range c.Ports {
			out[port.Name] = true
		}
	}
	return out
}

// check follows what a pod refers to.
func (p pod) check(t *testing.T, names map[string]bool) {
	t.Helper()
	if p.selector != nil && !within(p.selector.MatchLabels, p.template.Labels) {
		t.Errorf("%s selects %v, and its pods have %v", p.owner, p.selector.MatchLabels, p.template.Labels)
	}
	volumes := map[string]bool{}
	for _, v := range p.template.Spec.Volumes {
		volumes[v.Name] = true
		switch {
		case v.ConfigMap != nil && !names["ConfigMap/"+v.ConfigMap.Name],
			v.Secret != nil && !slices.Contains(secrets, v.Secret.SecretName),
			v.PersistentVolumeClaim != nil && !names["PersistentVolumeClaim/"+v.PersistentVolumeClaim.ClaimName]:
			t.Errorf("%s: volume %s is of nothing that there is", p.owner, v.Name)
		}
	}
	for _, c := range p.claims {
		volumes[c.Name] = true
	}
	for _, c := range p.template.Spec.Containers {
		env := map[string]bool{}
		for _, e := range c.Env {
			env[e.Name] = true
		}
		for _, from := range c.EnvFrom {
			if from.ConfigMapRef != nil && !names["ConfigMap/"+from.ConfigMapRef.Name] {
				t.Errorf("%s/%s: no ConfigMap %s", p.owner, c.Name, from.ConfigMapRef.Name)
			}
		}
		for _, arg := range c.Args {
			if _, rest, ok := strings.Cut(arg, "$("); ok {
				if name, _, _ := strings.Cut(rest, ")"); !env[name] {
					t.Errorf("%s/%s: %s has no variable %s", p.owner, c.Name, arg, name)
				}
			}
		}
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("%s/%s mounts %s, which is no volume", p.owner, c.Name, m.Name)
			}
		}
		for _, probe := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
			port := ""
			switch {
			case probe == nil:
				continue
			case probe.TCPSocket != nil:
				port = probe.TCPSocket.Port.String()
			case probe.HTTPGet != nil:
				port = probe.HTTPGet.Port.String()
			}
			if !p.ports()[port] {
				t.Errorf("%s/%s probes port %q, which it does not have", p.owner, c.Name, port)
			}
		}
		p.probed(t, &c)
		if c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s/%s has no limit of memory", p.owner, c.Name)
		}
	}
}

// probed checks that a container with a metrics endpoint is asked there, for one thing by each probe: one that is killed while it is not ready would never be.
func (p pod) probed(t *testing.T, c *corev1.Container) {
	t.Helper()
	if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == "metrics" }) {
		return
	}
	for _, x := range []struct {
		what, path string
		probe      *corev1.Probe
	}{{"startup", "/healthz", c.StartupProbe}, {"readiness", "/readyz", c.ReadinessProbe}, {"liveness", "/healthz", c.LivenessProbe}} {
		if x.probe == nil || x.probe.HTTPGet == nil || x.probe.HTTPGet.Path != x.path || x.probe.HTTPGet.Port.String() != "metrics" {
			t.Errorf("%s/%s: the %s probe is %v, want %s of the metrics endpoint", p.owner, c.Name, x.what, x.probe, x.path)
		}
	}
}

// TestWrong: what is wrong is found. It is the check of the check.
func TestWrong(t *testing.T) {
	var s appsv1.StatefulSet
	for _, text := range []string{
		"kind: StatefulSet\nspec: {replica: 2}",
		"kind: StatefulSet\nspec: {replicas: two}",
		"kind: StatefulSet\nspec: {template: {spec: {containers: [{name: a, volumeMount: []}]}}}",
		"kind: StatefulSet\nkind: StatefulSet",
	} {
		if err := yaml.UnmarshalStrict([]byte(text), &s); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
