package mongo

import (
	"net/url"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stint-go/stint"
)

// urlForms is what a URL may be, in words.
const urlForms = "mongodb://[user:pass@]host:port,host:port/database?options or mongodb+srv://[user:pass@]name/database?options"

// defaultDatabase is the one of a URL that names none.
const defaultDatabase = "stint"

// parse returns the database that a URL names. What the options of the driver may be is its
// matter; of a name whose hosts DNS knows they are read later.
func parse(address string) (database string, err error) {
	scheme, rest, _ := strings.Cut(address, "://")
	if scheme != "mongodb" && scheme != "mongodb+srv" {
		return "", invalidURL("another scheme, or none")
	}
	rest, _, _ = strings.Cut(rest, "?")
	at := strings.LastIndexByte(rest, '@') + 1
	if _, err := url.PathUnescape(rest[:at]); err != nil {
		return "", invalidURL("a user or password with a bad percent-encoding")
	}
	hosts, path, _ := strings.Cut(rest[at:], "/")
	if hosts == "" {
		return "", invalidURL("no host")
	}
	database, err = url.PathUnescape(path)
	if err != nil {
		return "", invalidURL("a database with a bad percent-encoding")
	}
	if database == "" {
		database = defaultDatabase
	}
	if len(database) > 63 || strings.ContainsAny(database, "/\\. \"$*<>:|?\x00") {
		return "", stint.Invalid("the database of the URL", database, `1 to 63 bytes without any of /\. "$*<>:|?`)
	}
	if scheme == "mongodb" {
		if err := options.Client().ApplyURI(address).Validate(); err != nil {
			return "", invalidURL(hide(err.Error(), address))
		}
	}
	return database, nil
}

// invalidURL is the error of a URL. It does not repeat the URL, which may hold a password.
func invalidURL(fault string) error { return stint.Invalid("the URL", verbatim(fault), urlForms) }

// verbatim is a text that [stint.Invalid] shows as it is.
type verbatim string

// hide takes out of a message what a URL says that may be secret: who asks, and the options.
func hide(message, address string) string {
	_, rest, _ := strings.Cut(address, "://")
	rest, query, _ := strings.Cut(rest, "?")
	var secrets []string
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, password, _ := strings.Cut(rest[:at], ":")
		secrets = append(secrets, rest[:at], user, password)
	}
	for option := range strings.FieldsFuncSeq(query, func(c rune) bool { return c == '&' || c == ';' }) {
		name, value, _ := strings.Cut(option, "=")
		lower := strings.ToLower(name)
		if strings.Contains(lower, "password") || strings.Contains(lower, "properties") {
			secrets = append(secrets, value)
		}
	}
	for _, secret := range secrets {
		plain, err := url.PathUnescape(secret)
		if err != nil {
			plain = secret
		}
		if secret != "" && (strings.Contains(message, secret) || strings.Contains(message, plain)) {
			return "what the driver can't read"
		}
	}
	return message
}
