package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-go/stint/bench/internal/redislimit"
)

// A selection is what to measure: of each kind the values named, all if none is. It
// is written as the parts of a benchmark's name, such as
// impl=stint,redis_rate/load=hot/callers=64.
type selection map[string][]string

func parseSelection(text string) (selection, error) {
	s := selection{}
	if text == "" {
		return s, nil
	}
	for _, part := range strings.Split(text, "/") {
		kind, values, _ := strings.Cut(part, "=")
		if kind != "impl" && kind != "load" && kind != "callers" {
			return nil, fmt.Errorf("only is %q; allowed: parts impl=…, load=… and callers=…, joined by /", text)
		}
		for _, value := range strings.Split(values, ",") {
			if allowed := selectable(kind); allowed != nil && !slices.Contains(allowed, value) {
				return nil, fmt.Errorf("only has %s=%q; allowed: %s", kind, value, strings.Join(allowed, ", "))
			}
			if _, err := strconv.Atoi(value); kind == "callers" && err != nil {
				return nil, fmt.Errorf("only has callers=%q; allowed: numbers", value)
			}
			s[kind] = append(s[kind], value)
		}
	}
	return s, nil
}

// selectable lists the values of a kind; nil for any number.
func selectable(kind string) []string {
	var values []string
	switch kind {
	case "impl":
		for _, c := range redislimit.Contenders() {
			values = append(values, c.Name)
		}
	case "load":
		for _, l := range loads() {
			values = append(values, l.name)
		}
		values = append(values, memoryLoad)
	}
	return values
}

func (s selection) has(kind, value string) bool {
	values, named := s[kind]
	return !named || slices.Contains(values, value)
}

func (s selection) impl(name string) bool { return s.has("impl", name) }
func (s selection) load(name string) bool { return s.has("load", name) }
func (s selection) callers(n int) bool    { return s.has("callers", strconv.Itoa(n)) }
