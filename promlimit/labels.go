package promlimit

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
)

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// ownLabels are those that metrics of stint, of Go and of the process have themselves.
var ownLabels = []string{
	"action", "algorithm", "allowed", "cause", "direction", "kind", "le", "mode", "node", "outcome", "quantile",
	"rule", "service", "set", "state", "version",
}

// WithLabels returns a registerer that gives every metric these labels, such as {"application": "shop"}. The
// values are constant. An error wraps stint.ErrInvalid, and holds all faults: a name is not one of Prometheus's, or a metric
// has a label of that name itself; or a value is not UTF-8.
func WithLabels(registerer prometheus.Registerer, labels map[string]string) (prometheus.Registerer, error) {
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		switch {
		case !labelName.MatchString(name) || strings.HasPrefix(name, "__"):
			faults = append(faults, stint.Invalid("metrics.labels", name, "names of letters, digits and _, which begin with neither a digit nor __"))
		case slices.Contains(ownLabels, name):
			faults = append(faults, stint.Invalid("metrics.labels", name, fmt.Sprintf("names other than those that metrics have themselves (%s)", strings.Join(ownLabels, ", "))))
		case !utf8.ValidString(labels[name]):
			faults = append(faults, stint.Invalid("metrics.labels."+name, labels[name], "UTF-8"))
		}
	}
	if err := prefix.Join(faults...); err != nil {
		return nil, err
	}
	if len(labels) == 0 {
		return registerer, nil
	}
	return prometheus.WrapRegistererWith(labels, registerer), nil
}
