package main

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/config"
)

// A description is a request for rules, as flags describe it. Several commands take one: rules
// explain and check describe the same request by the same flags.
type description struct {
	Method, Path, Host, IP, User, APIKey, Set string
	Header, Attribute                         []string
}

// standardRequest is what the flags describe that are not given.
var standardRequest = description{Method: http.MethodGet, Path: "/"}

// descriptionFlags are the names of the flags of a description.
var descriptionFlags = []string{"method", "path", "host", "ip", "user", "api-key", "set", "header", "attribute"}

// given reports whether any of the flags was given, and which.
func (d *description) given(flags *pflag.FlagSet) (name string, given bool) {
	i := slices.IndexFunc(descriptionFlags, flags.Changed)
	if i < 0 {
		return "", false
	}
	return descriptionFlags[i], true
}

// ip is the client's address, the zero value if none is given. An IPv4 address that is written as
// one of IPv6 is taken as the former, and a zone is dropped, as a listener would.
func (d *description) ip() (netip.Addr, error) {
	if d.IP == "" {
		return netip.Addr{}, nil
	}
	address, err := netip.ParseAddr(d.IP)
	if err != nil {
		return address, misused("--ip is %q; allowed: an address such as 192.0.2.1 or 2001:db8::1", d.IP)
	}
	return address.WithZone("").Unmap(), nil
}

// request is the request as rules see it. The address becomes a key as in the service: by the
// prefixes of the configuration.
func (d *description) request(loaded config.Config) (*rules.Request, error) {
	address, err := d.ip()
	if err != nil {
		return nil, err
	}
	r, err := d.withoutAddress()
	if err != nil || !address.IsValid() {
		return r, err
	}
	resolver, err := clientip.New(clientip.Config(loaded.ClientIP))
	if err != nil {
		return nil, misconfigured(err)
	}
	r.Address = resolver.KeyOf(address)
	return r, nil
}

// withoutAddress is the request but for the client's address, of which the configuration makes a
// key.
func (d *description) withoutAddress() (*rules.Request, error) {
	r := &rules.Request{
		Method: d.Method, Path: d.Path, Host: d.Host, User: d.User, APIKey: d.APIKey, Set: d.Set,
		Header: http.Header{}, Attributes: map[string]string{},
	}
	for _, text := range d.Header {
		name, value, found := strings.Cut(text, ":")
		if !found || name == "" {
			return nil, misused("--header is %q; allowed: NAME: VALUE", text)
		}
		r.Header.Add(name, strings.TrimSpace(value))
	}
	for _, text := range d.Attribute {
		name, value, found := strings.Cut(text, "=")
		if !found || name == "" {
			return nil, misused("--attribute is %q; allowed: NAME=VALUE", text)
		}
		r.Attributes[name] = value
	}
	return r, nil
}

// document is the request as a service is told it, in JSON.
func (d *description) document() ([]byte, error) {
	request, err := d.wire()
	if err != nil {
		return nil, err
	}
	return json.Marshal(request)
}

// wire is the request as a service is told it, which takes each header field once. User and API key
// travel as attributes, which is how the API takes them from callers that have authenticated
// somebody themselves.
func (d *description) wire() (api.EvaluateRequest, error) {
	if _, err := d.ip(); err != nil {
		return api.EvaluateRequest{}, err
	}
	r, err := d.withoutAddress()
	if err != nil {
		return api.EvaluateRequest{}, err
	}
	asked := api.EvaluateRequest{
		Method: r.Method, Path: r.Path, Host: r.Host, IP: d.IP, Set: r.Set,
		Attributes: r.Attributes, Headers: map[string]string{},
	}
	for name, values := range r.Header {
		asked.Headers[name] = strings.Join(values, ", ")
	}
	for name, value := range map[string]string{api.AttributeUserID: r.User, api.AttributeAPIKey: r.APIKey} {
		if value != "" {
			asked.Attributes[name] = value
		}
	}
	return asked, nil
}
