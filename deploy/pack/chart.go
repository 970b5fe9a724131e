package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

// chart writes the chart, and what it makes with its default values as manifests, for use without
// Helm.
func (b build) chart() error {
	chart, err := loader.Load(filepath.Join(b.deploy, "helm"))
	if err != nil {
		return err
	}
	chart.Metadata.Version, chart.Metadata.AppVersion = b.version, b.version
	if _, err := chartutil.Save(chart, b.out); err != nil {
		return err
	}
	manifests, err := render(chart, nil)
	if err != nil {
		return err
	}
	text := "# stint " + b.version + " for Kubernetes, as its chart makes it with the values it has by itself.\n"
	for _, name := range slices.Sorted(maps.Keys(manifests)) {
		text += "---\n" + strings.TrimSpace(manifests[name]) + "\n"
	}
	return os.WriteFile(filepath.Join(b.out, fmt.Sprintf("stint_%s.kubernetes.yaml", b.version)), []byte(text), 0o644)
}

// render renders a chart with values, as `helm template stint --namespace stint` does, and returns
// the documents by the names of their templates, those that are empty left out. The capabilities
// are the defaults of Helm's library, as no cluster is asked.
func render(chart *chart.Chart, values map[string]any) (map[string]string, error) {
	release := chartutil.ReleaseOptions{Name: "stint", Namespace: "stint", Revision: 1, IsInstall: true}
	capabilities := chartutil.DefaultCapabilities.Copy()
	all, err := chartutil.ToRenderValues(chart, values, release, capabilities)
	if err != nil {
		return nil, err
	}
	documents, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(documents, func(name, text string) bool {
		return !strings.HasSuffix(name, ".yaml") || strings.TrimSpace(text) == ""
	})
	return documents, nil
}
