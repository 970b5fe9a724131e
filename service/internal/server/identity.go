package server

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/service/internal/server/problem"
)

// An Identity names the header fields in which a trusted proxy names the user. It must set
// or remove them in every request: what it merely passes on is the client's word.
type Identity struct {
	// User is the field with the user, such as X-User-Id. Default: "", no user is known.
	User string
	// APIKey is the field with the API key, such as X-Api-Key. Default: "", no key is known.
	APIKey string
	// Attributes are the fields with further attributes of the request, by attribute: {"plan": "X-Plan"}.
	// Up to 16. Default: none.
	Attributes map[string]string
}

// The most attributes of an Identity, and bytes of an attribute's name, as rules have it.
const (
	maxIdentityAttributes = 16
	maxAttributeName      = 256
)

// canonical is the identity with fields as http.Header keeps them.
func (i Identity) canonical() Identity {
	i.User, i.APIKey = http.CanonicalHeaderKey(i.User), http.CanonicalHeaderKey(i.APIKey)
	i.Attributes = maps.Clone(i.Attributes)
	for attribute, field := range i.Attributes {
		i.Attributes[attribute] = http.CanonicalHeaderKey(field)
	}
	return i
}

// Validate reports everything that is wrong with the identity, joined. The parameters carry the
// names of the configuration file. No field may hold two things, or one proxy's setting would
// answer for both.
func (i Identity) Validate() error {
	var faults []error
	add := func(param string, value any, allowed string) {
		faults = append(faults, stint.Invalid(param, value, allowed))
	}
	taken := map[string]string{} // what each field holds
	check := func(param, field string) {
		canonical := http.CanonicalHeaderKey(field)
		if !clientip.IsFieldName(field) {
			add(param, problem.Short(field), "the name of a header field")
		} else if holds := taken[canonical]; holds != "" {
			add(param, problem.Short(field), "another field than that of "+problem.Short(holds))
		} else {
			taken[canonical] = param
		}
	}
	if i.User != "" {
		check("identity.user", i.User)
	}
	if i.APIKey != "" {
		check("identity.api_key", i.APIKey)
	}
	if n := len(i.Attributes); n > maxIdentityAttributes {
		add("identity.attributes", n, fmt.Sprintf("at most %d attributes", maxIdentityAttributes))
	}
	for _, attribute := range slices.Sorted(maps.Keys(i.Attributes)) {
		switch {
		case attribute == "" || len(attribute) > maxAttributeName || !utf8.ValidString(attribute) ||
			strings.ContainsFunc(attribute, unicode.IsControl):
			add("identity.attributes", problem.Short(attribute),
				fmt.Sprintf("names of attributes, 1 to %d bytes without control characters", maxAttributeName))
		case attribute == api.AttributeUserID:
			add("identity.attributes", attribute, "identity.user in its place")
		case attribute == api.AttributeAPIKey:
			add("identity.attributes", attribute, "identity.api_key in its place")
		default:
			check("identity.attributes."+attribute, i.Attributes[attribute])
		}
	}
	return prefix.Join(faults...)
}

// read takes from the header who asks. An empty field is as good as none. A field that stands twice
// is an error: a proxy that adds to what a client sent would let the client choose.
func (i *Identity) read(e *evaluation, header http.Header) (err error) {
	if e.request.User, err = single(header, i.User); err != nil {
		return err
	}
	if e.request.APIKey, err = single(header, i.APIKey); err != nil {
		return err
	}
	for attribute, field := range i.Attributes {
		value, err := single(header, field)
		if err != nil {
			return err
		}
		if value != "" {
			e.attributes[attribute] = value
		}
	}
	e.request.Attributes = e.attributes
	return nil
}
