package config

import (
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/redisstore"
)

// kinds are what settings may be besides what package document knows.
var kinds = document.Kinds{
	"address": text("HOST:PORT with a port from 0 to 65535", isAddress),
	"grpc-address": text(
		"HOST:PORT with a port from 0 to 65535, or unix: and the path of a socket",
		func(text string) bool {
			path, local := strings.CutPrefix(text, "unix:")
			return local && path != "" || isAddress(text)
		},
	),
	"store-url": text(
		"memory:// or a URL of one of the schemes "+strings.Join(redisSchemes, ", "),
		func(text string) bool { return text == memoryURL || isURL(text, redisSchemes) },
	),
	"webhook": text("the URL of a webhook, by http:// or https://", func(text string) bool {
		target, err := url.Parse(text)
		return text == "" || err == nil && (target.Scheme == "http" || target.Scheme == "https") && target.Host != ""
	}, document.KindNull),
	"place": text("a file, a folder, "+RulesFromStore+", or a URL of one of the schemes "+
		strings.Join(slices.Concat(redisSchemes, mongoSchemes), ", "), func(text string) bool {
		return isURL(text, redisSchemes) || isURL(text, mongoSchemes) ||
			!strings.Contains(text, "://") && !mayHoldPassword(text)
	}, document.KindNull),
	"key-prefix": text("1 to 64 letters, digits, or any of _ - . : /", func(text string) bool {
		return text != "" && len(text) <= 64 && !strings.ContainsFunc(text, func(r rune) bool {
			return !isLetterOrDigit(r) && !strings.ContainsRune("_-.:/", r)
		})
	}),
	"partitions": document.Of(func(field *int) document.Setter {
		return document.Scalar("a power of two from 1 to 256", func(text string) bool {
			n, ok := document.ParseInteger(text)
			*field = int(n)
			return ok && redisstore.Options{Partitions: int(n)}.Validate() == nil && n > 0
		}, document.KindInteger)
	}),
	"header": text(
		"the name of a header field, or nothing",
		func(text string) bool { return text == "" || clientip.IsFieldName(text) },
	),
	"attribute-headers": document.Of(attributeHeaders), // whose names are checked together
	"headers": document.Of(func(field *[]string) document.Setter { // but Forwarded, whose elements are not plain addresses
		return document.List(field, "names of header fields that hold only addresses, such as X-Forwarded-For",
			func(text string) (string, bool) {
				return text, clientip.IsFieldName(text) && !strings.EqualFold(text, "Forwarded")
			})
	}),
	"networks": document.Of(func(field *[]netip.Prefix) document.Setter {
		return document.List(
			field, "addresses or networks such as 10.0.0.0/8 or fd00::/8, whose host bits are 0", network,
		)
	}),
	"ietf": document.Of(func(field *httplimit.Fields) document.Setter {
		return document.Scalar("true, false, draft-11 or issue-166", func(text string) (known bool) {
			*field, known = map[string]httplimit.Fields{
				"false": 0, "true": httplimit.IETF, "draft-11": httplimit.IETF, "issue-166": httplimit.IETF166,
			}[strings.ToLower(text)]
			return known
		}, document.KindBoolean, document.KindText)
	}),
	"level": document.Of(func(field *slog.Level) document.Setter {
		return document.Scalar("debug, info, warn or error", func(text string) bool {
			return slices.Contains([]string{"debug", "info", "warn", "error"}, text) && field.UnmarshalText([]byte(text)) == nil
		}, document.KindText)
	}),
}

// text is a kind of texts.
func text(allowed string, is func(text string) bool, others ...document.Kind) func(any, []string) document.Reader {
	return document.Of(func(field *string) document.Setter {
		return document.Scalar(allowed, func(text string) bool {
			*field = text
			return is(text)
		}, append(others, document.KindText)...)
	})
}

// attributeHeaders reads the names of headers by attributes: a mapping, or NAME=HEADER with commas
// between.
func attributeHeaders(into *map[string]string) document.Setter {
	return func(v document.Value, fault func(document.Value, string)) {
		const allowed = "headers by the attributes that they hold, such as {plan: X-Plan}, " +
			"or plan=X-Plan in a flag or a variable"
		if v.Kind == document.KindUntyped {
			items := v.Split().Items
			v = document.Value{At: v.At, Kind: document.KindMapping}
			for _, item := range items {
				name, header, found := strings.Cut(item.Text, "=")
				if slices.ContainsFunc(v.Fields, func(f document.Field) bool { return f.Name == name }) || !found {
					fault(item, allowed)
					continue
				}
				v.Fields = append(v.Fields, document.Field{
					At: v.At, Name: name, Value: document.Value{At: v.At, Kind: document.KindText, Text: header},
				})
			}
		}
		if v.Kind != document.KindMapping && v.Kind != document.KindNull {
			fault(v, allowed)
			return
		}
		*into = nil
		for _, f := range v.Fields {
			if f.Value.Kind != document.KindText {
				fault(f.Value, allowed)
				continue
			}
			if *into == nil {
				*into = map[string]string{}
			}
			(*into)[f.Name] = f.Value.Text
		}
	}
}

var (
	redisSchemes = []string{
		"redis", "rediss", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster", "unix",
	}
	mongoSchemes = []string{"mongodb", "mongodb+srv"}
)

// isAddress reports whether the text is a host and a port.
func isAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	n, ok := document.ParseInteger(port)
	return err == nil && ok && n >= 0 && n <= 65535
}

// isURL reports whether the text names a server by one of the schemes.
func isURL(text string, schemes []string) bool {
	scheme, rest, found := strings.Cut(text, "://")
	return found && rest != "" && !strings.HasSuffix(rest, "@") && slices.Contains(schemes, scheme)
}

// mayHoldPassword reports whether a text may be a mistyped URL with a password, which is not
// shown as the path of a file that is not there.
func mayHoldPassword(text string) bool {
	before, _, found := strings.Cut(text, "@")
	return found && strings.Contains(before, ":")
}

// RulesInRedis reports whether rules are kept in a Redis of their own.
func (c *Config) RulesInRedis() bool { return isURL(c.RulesFrom, redisSchemes) }

// RulesInMongo reports whether rules are kept in a MongoDB.
func (c *Config) RulesInMongo() bool { return isURL(c.RulesFrom, mongoSchemes) }

// network reads an address, which is a network of one, or a network whose bits behind the prefix
// are 0.
func network(text string) (netip.Prefix, bool) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		address = address.Unmap()
		return netip.PrefixFrom(address, address.BitLen()), true
	}
	prefix, err := netip.ParsePrefix(text)
	return prefix, err == nil && prefix == prefix.Masked()
}

func isLetterOrDigit(r rune) bool {
	return '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}
