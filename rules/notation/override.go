package notation

import (
	"strings"

	"github.com/stint-go/stint/rules"
)

var overrideNames = []string{"key", "limits", "unlimited", "banned"}

// Override reads what holds for a single client. path is what it is called in messages.
func Override(v Value, path string, faults *Faults) rules.Override {
	var override rules.Override
	if v.Kind != KindMapping {
		faults.Invalid(path, v, "a mapping with "+strings.Join(overrideNames, ", "))
		return override
	}
	set := func(name string, v Value, set Setter) {
		set(v, func(v Value, allowed string) { faults.Invalid(path+"."+name, v, allowed) })
	}
	faults.Mapping(path, v, func(f Field) bool {
		switch f.Name {
		case "key":
			set("key", f.Value, some(&override.Key, "a text that names a client"))
		case "limits":
			override.Limits, override.Costs = limitsWithCosts(path+".limits", f.Value, faults)
		case "unlimited":
			set("unlimited", f.Value, Boolean(&override.Unlimited))
		case "banned":
			set("banned", f.Value, Boolean(&override.Banned))
		default:
			return false
		}
		return true
	}, overrideNames)
	return override
}
