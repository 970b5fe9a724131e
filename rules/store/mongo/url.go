package mongo

import (
	"net/url"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/document"
)

const (
	// urlForms is what a URL may be, in words.
	urlForms = "mongodb://[user:pass@]host:port,host:port/database?options or mongodb+srv://[user:pass@]name/database?options"
	// defaultDatabase is the one of a URL that names none.
	defaultDatabase = "stint"
	// maxName bounds a collection's name, in bytes. MongoDB allows 255 together with the database.
	maxName = 120
)

// A place is what a URL names.
type place struct {
	url        string // for the driver
	database   string
	collection string
}

// parse reads a URL. The driver reads the other options; those of mongodb+srv when it connects.
func parse(address, collection string) (place, error) {
	scheme, rest, _ := strings.Cut(address, "://")
	if scheme != "mongodb" && scheme != "mongodb+srv" {
		return place{}, invalidURL("another scheme, or none")
	}
	rest, query, _ := strings.Cut(rest, "?")
	at := strings.LastIndexByte(rest, '@') + 1
	if _, err := url.PathUnescape(rest[:at]); err != nil {
		return place{}, invalidURL("a user or password with a bad percent-encoding")
	}
	hosts, path, _ := strings.Cut(rest[at:], "/")
	if hosts == "" {
		return place{}, invalidURL("no host")
	}
	database, err := url.PathUnescape(path)
	if err != nil {
		return place{}, invalidURL("a database with a bad percent-encoding")
	}
	if database == "" {
		database = defaultDatabase
	}
	if len(database) > 63 || strings.ContainsAny(database, "/\\. \"$*<>:|?\x00") {
		return place{}, stint.Invalid("the database of the URL", database, `1 to 63 bytes without any of /\. "$*<>:|?`)
	}
	collection, query = cutCollection(query, collection)
	if collection == "" || len(collection) > maxName || strings.ContainsAny(collection, "$\x00") || strings.HasPrefix(collection, "system.") {
		return place{}, stint.Invalid("the collection of the URL", collection, "1 to 120 bytes without $, and not system. at the beginning")
	}
	p := place{url: scheme + "://" + strings.TrimSuffix(rest[:at]+hosts+"/"+path+"?"+query, "?"), database: database, collection: collection}
	if scheme == "mongodb" {
		if err := options.Client().ApplyURI(p.url).Validate(); err != nil {
			return place{}, invalidURL(hide(err.Error(), address))
		}
	}
	return p, nil
}

// cutCollection takes the option collection out of a query, which the driver does not know.
func cutCollection(query, collection string) (name, rest string) {
	var others []string
	for option := range strings.SplitSeq(query, "&") {
		value, found := strings.CutPrefix(option, "collection=")
		if !found {
			others = append(others, option)
		} else if plain, err := url.QueryUnescape(value); err == nil {
			collection = plain
		} else {
			collection = value
		}
	}
	return collection, strings.Join(others, "&")
}

// invalidURL is the error of a URL. It does not repeat the URL, which may hold a password.
func invalidURL(fault string) error {
	return stint.Invalid("the URL", document.Verbatim(fault), urlForms)
}

// hide returns another message where one repeats what may be secret in a URL: the user, the password, and
// some options.
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
