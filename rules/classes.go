package rules

import (
	"fmt"
	"maps"
	"slices"
)

// Classes are classes of requests that leave different parts of the rule's limits to others.
//
// A request of a class is admitted only while more than Keep of the limit is left. So the class
// with the largest part is denied first, and the most important one has the whole limit.
type Classes struct {
	// By is where a request says its class.
	By ClassBy `doc:"by"`
	// Keep is how much of each limit a class leaves to the others: 0 % of the most important one. With
	// floors it is of what no floor needs. 1 to 16 classes.
	Keep map[string]Percent `doc:"keep" of:"classes to what each leaves, such as batch: 40%" each:"percent 0 99"`
	// Default is the class of a request that says none, or another one. It has no default.
	Default string `doc:"default"`
}

// ClassBy is where a request says its class: the program, or a proxy that is trusted, knows it for
// certain.
type ClassBy struct {
	// Attribute names an attribute. It has no default.
	Attribute string `doc:"attribute"`
}

// A Percent is a part of a limit. What it gives is rounded down to whole permits.
type Percent int64

// of is the part of n.
func (p Percent) of(n int64) int64 { return max(0, n) * int64(p) / 100 }

// maxClasses bounds the labels of metrics that classes make.
const maxClasses = 16

// validateClasses reports what is wrong with the rule's classes.
func (r *Rule) validateClasses(f *faults) {
	c := &r.Classes
	if c.By == (ClassBy{}) && len(c.Keep) == 0 && c.Default == "" {
		return
	}
	if c.By.Attribute == "" || len(c.By.Attribute) > maxText || !isPrintable(c.By.Attribute) {
		f.invalid("classes.by.attribute", c.By.Attribute,
			fmt.Sprintf("the name of an attribute, 1 to %d bytes without control characters", maxText))
	}
	if n := len(c.Keep); n == 0 || n > maxClasses {
		f.invalid("classes.keep", n, fmt.Sprintf("1 to %d classes", maxClasses))
	}
	for _, class := range slices.Sorted(maps.Keys(c.Keep)) {
		if class == "" || len(class) > maxText || !isPrintable(class) {
			f.invalid("classes.keep", class, fmt.Sprintf("names of 1 to %d bytes without control characters", maxText))
		}
		if p := c.Keep[class]; p < 0 || p > 99 {
			f.invalid("classes.keep."+class, int64(p), "0% to 99%")
		}
	}
	if _, known := c.Keep[c.Default]; !known {
		f.invalid("classes.default", c.Default, "one of the classes of keep")
	}
	if r.Unlimited || r.Banned {
		f.invalid("classes", plain("given"), "none of a rule that is unlimited or banned")
	}
}

// Has reports whether the rule has classes.
func (c *Classes) Has() bool { return len(c.Keep) > 0 }

// classOf is a request's class, and what it leaves.
func (c *compiled) classOf(request *Request) (keep Percent, class string) {
	if !c.Classes.Has() {
		return 0, ""
	}
	class, known := c.classNames[request.Attributes[c.Classes.By.Attribute]]
	if !known {
		class = c.Classes.Default
	}
	return c.Classes.Keep[class], class
}

// names are the classes' names by themselves, so that a request's class is the rule's text: who keeps
// it, as those do who are told of events, keeps nothing of the request.
func (c *Classes) names() map[string]string {
	if !c.Has() {
		return nil
	}
	names := make(map[string]string, len(c.Keep))
	for name := range c.Keep {
		names[name] = name
	}
	return names
}
