package config

import (
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/redisstore"
)

// kinds are what settings may be besides what package document knows.
var kinds = document.Kinds{
	"address": text("HOST:PORT with a port from 0 to 65535", func(text string) bool {
		_, port, err := net.SplitHostPort(text)
		n, ok := document.ParseInteger(port)
		return err == nil && ok && n >= 0 && n <= 65535
	}),
	"not-yet": func(_ any, what []string) document.Reader {
		return document.Scalar("off, since this version does not offer "+strings.Join(what, " ")+" yet",
			func(text string) bool { return text == "" || text == "off" }, document.KindText, document.KindNull)
	},
	"store-url": text("memory:// or a URL of one of the schemes "+strings.Join(redisSchemes, ", "), func(text string) bool {
		return text == memoryURL || isURL(text, redisSchemes)
	}),
	"webhook": text("the URL of a webhook, by http:// or https://", func(text string) bool {
		target, err := url.Parse(text)
		return text == "" || err == nil && (target.Scheme == "http" || target.Scheme == "https") && target.Host != ""
	}, document.KindNull),
	"place": text("a file, a folder, "+RulesFromStore+", or a URL of one of the schemes "+strings.Join(slices.Concat(redisSchemes, mongoSchemes), ", "), func(text string) bool {
		return isURL(text, redisSchemes) || isURL(text, mongoSchemes) || !strings.Contains(text, "://") && !mayHoldPassword(text)
	}, document.KindNull),
	"key-prefix": text("1 to 64 letters, digits, or any of _ - . : /", func(text string) bool {
		return text != "" && len(text) <= 64 && !strings.ContainsFunc(text, func(r rune) bool {
			return !isLetterOrDigit(r) && !strings.ContainsRune("_-.:/", r)
		})
	}),
	"partitions": func(field any, _ []string) document.Reader {
		return document.Scalar("a power of two from 1 to 256", func(text string) bool {
			n, ok := document.ParseInteger(text)
			*field.(*int) = int(n)
			return ok && redisstore.Options{Partitions: int(n)}.Validate() == nil && n > 0
		}, document.KindInteger)
	},
	"header": text("the name of a header field, or nothing", func(text string) bool { return text == "" || clientip.IsFieldName(text) }),
	"headers": func(field any, _ []string) document.Reader { // but Forwarded, whose elements are not plain addresses
		return document.List(field.(*[]string), "names of header fields that hold only addresses, such as X-Forwarded-For", func(text string) (string, bool) {
			return text, clientip.IsFieldName(text) && !strings.EqualFold(text, "Forwarded")
		})
	},
	"networks": func(field any, _ []string) document.Reader {
		return document.List(field.(*[]netip.Prefix), "addresses or networks such as 10.0.0.0/8 or fd00::/8, whose host bits are 0", network)
	},
	"level": func(field any, _ []string) document.Reader {
		return document.Scalar("debug, info, warn or error", func(text string) bool {
			return slices.Contains([]string{"debug", "info", "warn", "error"}, text) && field.(*slog.Level).UnmarshalText([]byte(text)) == nil
		}, document.KindText)
	},
}

// text is a kind of texts.
func text(allowed string, is func(text string) bool, others ...document.Kind) func(any, []string) document.Reader {
	return func(field any, _ []string) document.Reader {
		return document.Scalar(allowed, func(text string) bool {
			*field.(*string) = text
			return is(text)
		}, append(others, document.KindText)...)
	}
}

var (
	redisSchemes = []string{"redis", "rediss", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster", "unix"}
	mongoSchemes = []string{"mongodb", "mongodb+srv"}
)

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
