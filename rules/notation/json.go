package notation

import (
	"bytes"
	"encoding/json"

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
