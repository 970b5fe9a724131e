package notation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
)

// JSON writes a rule as one line of JSON, which [Rule] reads as the same rule. Equal rules
// are written alike: names in one order, and none for what is as by default. A rule with an
// unsound limit, or a choice that has no name, is an error; what else [rules.Compile]
// refuses is written as it is.
func JSON(rule rules.Rule) ([]byte, error) {
	written, err := write(rule)
	if err != nil {
		return nil, err
	}
	return line(written)
}

// Written is a rule as [JSON] writes it: a struct whose tags name the fields.
func Written(rule rules.Rule) (any, error) { return write(rule) }

// OverrideJSON writes what holds for one client, as [JSON] does among the rule's overrides.
func OverrideJSON(override rules.Override) ([]byte, error) {
	written, err := writeOverride(override)
	if err != nil {
		return nil, err
	}
	return line(written)
}

// line is a value as one line of JSON.
func line(written any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(written); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// A writtenRule is a rule in the order of its names.
type writtenRule struct {
	ID             string            `json:"id,omitempty"`
	Name           string            `json:"name,omitempty"`
	Set            string            `json:"set,omitempty"`
	Enabled        *bool             `json:"enabled,omitempty"`
	Priority       int               `json:"priority,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
	Match          *writtenMatch     `json:"match,omitempty"`
	Scope          any               `json:"scope,omitempty"`
	Missing        string            `json:"missing,omitempty"`
	Cost           any               `json:"cost,omitempty"`
	Limits         []writtenLimit    `json:"limits,omitempty"`
	Unlimited      bool              `json:"unlimited,omitempty"`
	Banned         bool              `json:"banned,omitempty"`
	OnExceed       string            `json:"on_exceed,omitempty"`
	MaxWait        string            `json:"max_wait,omitempty"`
	MaxWaiters     int               `json:"max_waiters,omitempty"`
	OnStoreFailure string            `json:"on_store_failure,omitempty"`
	Timeout        string            `json:"timeout,omitempty"`
	Overrides      []writtenOverride `json:"overrides,omitempty"`
}

type writtenMatch struct {
	Methods []string          `json:"methods,omitempty"`
	Path    string            `json:"path,omitempty"`
	Paths   []string          `json:"paths,omitempty"`
	Except  []string          `json:"except,omitempty"`
	Host    string            `json:"host,omitempty"`
	Hosts   []string          `json:"hosts,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

type writtenCost struct {
	Header    string `json:"header,omitempty"`
	Attribute string `json:"attribute,omitempty"`
	Default   int64  `json:"default,omitempty"`
}

type writtenLimit struct {
	Algorithm   string `json:"algorithm"`
	Name        string `json:"name,omitempty"`
	Capacity    int64  `json:"capacity,omitempty"`
	Refill      string `json:"refill,omitempty"`
	Leak        string `json:"leak,omitempty"`
	Limit       int64  `json:"limit,omitempty"`
	Window      string `json:"window,omitempty"`
	Calendar    string `json:"calendar,omitempty"`
	TimeZone    string `json:"timezone,omitempty"`
	MinInterval string `json:"min_interval,omitempty"`
	CountDenied bool   `json:"count_denied,omitempty"`
	MaxDebt     *int64 `json:"max_debt,omitempty"`
	Lease       any    `json:"lease,omitempty"`
	Cost        any    `json:"cost,omitempty"`
}

type writtenOverride struct {
	Key       string         `json:"key,omitempty"`
	Limits    []writtenLimit `json:"limits,omitempty"`
	Unlimited bool           `json:"unlimited,omitempty"`
	Banned    bool           `json:"banned,omitempty"`
}

// write brings a rule into the form that is written.
func write(rule rules.Rule) (writtenRule, error) {
	exceed := rule.OnExceed.String()
	switch failure := rule.OnStoreFailure; {
	case rule.Missing > rules.MissingIP:
		return writtenRule{}, stint.Invalid("missing", uint8(rule.Missing), "skip, deny or ip")
	case rule.OnExceed > rules.Shadow:
		return writtenRule{}, stint.Invalid("on_exceed", uint8(rule.OnExceed), "reject, wait or shadow")
	case failure != "" && failure != rules.FailOpen && failure != rules.FailClosed && failure != rules.FailLocal:
		return writtenRule{}, stint.Invalid("on_store_failure", string(failure), "open, closed or local")
	case rule.OnExceed == rules.Reject:
		exceed = ""
	}
	limits, err := writeLimits("limits", rule.Limits, rule.Costs)
	if err != nil {
		return writtenRule{}, err
	}
	w := writtenRule{
		ID: rule.ID, Name: rule.Name, Set: rule.Set, Priority: rule.Priority, Labels: rule.Labels, Match: writeMatch(rule.Match), Scope: writeScope(rule.Scope),
		Missing: rule.Missing.String(), Cost: writeCost(rule.Cost), Limits: limits, Unlimited: rule.Unlimited, Banned: rule.Banned, OnExceed: exceed,
		MaxWait: writeDuration(rule.MaxWait), MaxWaiters: rule.MaxWaiters, OnStoreFailure: string(rule.OnStoreFailure), Timeout: writeDuration(rule.Timeout),
	}
	if rule.Disabled {
		w.Enabled = new(bool)
	}
	for i, o := range rule.Overrides {
		override, err := writeOverride(o)
		if err != nil {
			return writtenRule{}, fmt.Errorf("overrides[%d].%w", i, err)
		}
		w.Overrides = append(w.Overrides, override)
	}
	return w, nil
}

func writeOverride(o rules.Override) (writtenOverride, error) {
	limits, err := writeLimits("limits", o.Limits, o.Costs)
	return writtenOverride{Key: o.Key, Limits: limits, Unlimited: o.Unlimited, Banned: o.Banned}, err
}

// writeMatch writes a single path and a single host by names of their own, and nothing if all requests match.
func writeMatch(m rules.Match) *writtenMatch {
	w := writtenMatch{Methods: m.Methods, Paths: m.Paths, Except: m.Except, Hosts: m.Hosts, Headers: m.Headers}
	if len(m.Methods)+len(m.Paths)+len(m.Except)+len(m.Hosts)+len(m.Headers) == 0 {
		return nil
	}
	if len(m.Paths) == 1 {
		w.Path, w.Paths = m.Paths[0], nil
	}
	if len(m.Hosts) == 1 {
		w.Host, w.Hosts = m.Hosts[0], nil
	}
	return &w
}

// writeScope writes one scope as itself, and several as a list.
func writeScope(scope []string) any {
	switch len(scope) {
	case 0:
		return nil
	case 1:
		return scope[0]
	default:
		return scope
	}
}

// writeCost writes a number as itself.
func writeCost(cost rules.Cost) any {
	switch {
	case cost == rules.Cost{}:
		return nil
	case cost.Header == "" && cost.Attribute == "":
		return cost.Permits
	default:
		return writtenCost{Header: cost.Header, Attribute: cost.Attribute, Default: cost.Permits}
	}
}

// writeDuration leaves 0 out.
func writeDuration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return stint.FormatDuration(d)
}

func writeLimits(path string, limits []stint.Limit, costs []rules.Cost) ([]writtenLimit, error) {
	var written []writtenLimit
	for i, limit := range limits {
		if err := limit.Validate(); err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", path, i, err)
		}
		w := writeLimit(limit)
		if i < len(costs) {
			w.Cost = writeCost(costs[i])
		}
		written = append(written, w)
	}
	return written, nil
}

// writeLimit writes a sound limit by the names that its algorithm's parameters have.
func writeLimit(l stint.Limit) writtenLimit {
	w := writtenLimit{
		Algorithm: strings.ToLower(l.Algorithm.String()), Name: l.Name, Window: writeDuration(l.Window), TimeZone: l.TimeZone,
		MinInterval: writeDuration(l.MinInterval), CountDenied: l.CountDenied,
	}
	switch l.Algorithm {
	case stint.AlgorithmTokenBucket:
		w.Capacity, w.Refill = l.Capacity, l.Rate.String()
	case stint.AlgorithmLeakyBucket:
		w.Capacity, w.Leak = l.Capacity, l.Rate.String()
	default:
		w.Limit = l.Capacity
	}
	if l.Calendar != stint.CalendarNone {
		w.Calendar = l.Calendar.String()
	}
	if l.MaxDebt != 0 {
		debt := max(0, l.MaxDebt) // stint.NoDebt is written as 0
		w.MaxDebt = &debt
	}
	switch l.Lease {
	case 0:
	case stint.LeaseAuto:
		w.Lease = "auto"
	default:
		w.Lease = l.Lease
	}
	return w
}
