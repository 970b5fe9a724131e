package config

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
	"github.com/stint-go/stint/internal/clip"
	"github.com/stint-go/stint/internal/prefix"
)

// The most attributes of an Identity, and bytes of an attribute's name, as rules have it.
const (
	maxIdentityAttributes = 16
	maxAttributeName      = 256
)

// Canonical is the identity with fields as http.Header keeps them.
func (i Identity) Canonical() Identity {
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
			add(param, short(field), "the name of a header field")
		} else if holds := taken[canonical]; holds != "" {
			add(param, short(field), "another field than that of "+short(holds))
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
			add("identity.attributes", short(attribute),
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

// short is a text as a fault may repeat it.
func short(text string) string { return clip.To(128, text) }
