package config

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/rules/notation"
)

func included(set *httplimit.Fields, fields httplimit.Fields) notation.Setter {
	var is bool
	read := notation.Boolean(&is)
	return func(v notation.Value, fault func(notation.Value, string)) {
		read(v, fault)
		*set &^= fields
		if is {
			*set |= fields
		}
	}
}

// instances reads a number of processes, or auto, which is 0.
func instances(field *int) notation.Setter {
	return notation.Scalar("1 to 1000000, or auto", func(text string) bool {
		n, ok := notation.ParseInteger(text)
		if text == "auto" {
			n, ok = 0, true
		} else {
			ok = ok && n >= 1 && n <= 1_000_000
		}
		*field = int(n)
		return ok
	}, notation.KindInteger, notation.KindText)
}

func timeout(field *time.Duration) notation.Setter {
	return notation.Scalar("1ms to 1m", func(text string) bool {
		d, err := stint.ParseDuration(text)
		*field = d
		return err == nil && d >= time.Millisecond && d <= time.Minute
	}, notation.KindText, notation.KindInteger)
}

// parseSize reads a number of bytes with one of the units KiB, MiB, GiB and TiB,
// or with none.
func parseSize(text string) (int64, bool) {
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	digits, shift := text, 0
	for i, unit := range units {
		if before, found := strings.CutSuffix(text, unit); found {
			digits, shift = before, 10*(i+1)
		}
	}
	n, ok := notation.ParseInteger(digits)
	return n << shift, ok && n >= 0 && n<<shift>>shift == n
}

func size(field *int64) notation.Setter {
	return notation.Scalar("a number of bytes such as 64MiB or 1GiB, at least 1MiB; or default", func(text string) bool {
		if text == "default" {
			*field = 0
			return true
		}
		n, ok := parseSize(text)
		*field = n
		return ok && n >= memstore.MinMaxBytes
	}, notation.KindText, notation.KindInteger)
}

// sizeBetween reads a number of bytes within bounds, which are whole KiB.
func sizeBetween(field *int64, least, most int64) notation.Setter {
	return notation.Scalar(fmt.Sprintf("a number of bytes such as 64KiB or 1MiB, %dKiB to %dKiB", least>>10, most>>10), func(text string) bool {
		n, ok := parseSize(text)
		*field = n
		return ok && n >= least && n <= most
	}, notation.KindText, notation.KindInteger)
}

func isAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return false
	}
	n, ok := notation.ParseInteger(port)
	return ok && n >= 0 && n <= 65535
}

func address(field *string) notation.Setter {
	return notation.Scalar("HOST:PORT with a port from 0 to 65535", func(text string) bool {
		*field = text
		return isAddress(text)
	}, notation.KindText)
}

func isOff(text string) bool { return text == "" || text == "off" }

func orOff(field *string) notation.Setter {
	return notation.Scalar("HOST:PORT with a port from 0 to 65535, or off", func(text string) bool {
		*field = text
		if isOff(text) {
			*field = ""
		}
		return *field == "" || isAddress(text)
	}, notation.KindText, notation.KindNull)
}

// notYet refuses every value but off.
func notYet(what string) notation.Setter {
	return notation.Scalar("off, since this version does not offer "+what+" yet", isOff, notation.KindText, notation.KindNull)
}

func redisSchemes() []string {
	return []string{"redis", "rediss", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster", "unix"}
}

// isURL reports whether the text names a server by one of the schemes.
func isURL(text string, schemes []string) bool {
	scheme, rest, found := strings.Cut(text, "://")
	return found && rest != "" && !strings.HasSuffix(rest, "@") && slices.Contains(schemes, scheme)
}

func storeURL(field *string) notation.Setter {
	schemes := redisSchemes()
	return notation.Scalar("memory:// or a URL of one of the schemes "+strings.Join(schemes, ", "), func(text string) bool {
		*field = text
		return text == memoryURL || isURL(text, schemes)
	}, notation.KindText)
}

// rulesPlace reads where rules are kept.
func rulesPlace(field *string) notation.Setter {
	schemes := append(redisSchemes(), mongoSchemes...)
	allowed := "a file, a folder, " + RulesFromStore + ", or a URL of one of the schemes " + strings.Join(schemes, ", ")
	return notation.Scalar(allowed, func(text string) bool {
		*field = text
		return isURL(text, schemes) || !strings.Contains(text, "://") && !mayHoldPassword(text)
	}, notation.KindText, notation.KindNull)
}

// mayHoldPassword reports whether a text may be a mistyped URL with a password, which is not
// shown as the path of a file that is not there.
func mayHoldPassword(text string) bool {
	before, _, found := strings.Cut(text, "@")
	return found && strings.Contains(before, ":")
}

// mongoSchemes are those of the URLs of MongoDB.
var mongoSchemes = []string{"mongodb", "mongodb+srv"}

// RulesInRedis reports whether rules are kept in a Redis of their own.
func (c *Config) RulesInRedis() bool { return isURL(c.RulesFrom, redisSchemes()) }

// RulesInMongo reports whether rules are kept in a MongoDB.
func (c *Config) RulesInMongo() bool { return isURL(c.RulesFrom, mongoSchemes) }

func keyPrefix(field *string) notation.Setter {
	return notation.Scalar("1 to 64 letters, digits, or any of _ - . : /", func(text string) bool {
		*field = text
		return text != "" && len(text) <= 64 && !strings.ContainsFunc(text, func(r rune) bool {
			return !isLetterOrDigit(r) && !strings.ContainsRune("_-.:/", r)
		})
	}, notation.KindText)
}

func logEncoding(field *string) notation.Setter {
	return notation.Scalar("packed, zset, stream or default", func(text string) bool {
		*field = text
		if text == "default" {
			*field = ""
		}
		return slices.Contains([]string{"packed", "zset", "stream", "default"}, text)
	}, notation.KindText)
}

func partitions(field *int) notation.Setter {
	return notation.Scalar("a power of two from 1 to 256, or default", func(text string) bool {
		if text == "default" {
			*field = 0
			return true
		}
		n, ok := notation.ParseInteger(text)
		*field = int(n)
		return ok && redisstore.Options{Partitions: *field}.Validate() == nil && n > 0
	}, notation.KindInteger, notation.KindText)
}

func failureMode(field *failover.Mode) notation.Setter {
	return notation.Scalar("open, closed or local", func(text string) bool {
		mode, err := failover.ParseMode(text)
		*field = mode
		return err == nil
	}, notation.KindText)
}

func overload(field *failover.Overload) notation.Setter {
	return notation.Scalar("reject or admit", func(text string) bool {
		what, err := failover.ParseOverload(text)
		*field = what
		return err == nil
	}, notation.KindText)
}

func ambiguousPaths(reject *bool) notation.Setter {
	return notation.Scalar("match or reject", func(text string) bool {
		*reject = text == "reject"
		return *reject || text == "match"
	}, notation.KindText)
}

func prefixes(field *[]netip.Prefix) notation.Setter {
	return notation.List(field, "addresses or networks such as 10.0.0.0/8 or fd00::/8, whose host bits are 0", func(text string) (netip.Prefix, bool) {
		if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
			address = address.Unmap()
			return netip.PrefixFrom(address, address.BitLen()), true
		}
		prefix, err := netip.ParsePrefix(text)
		return prefix, err == nil && prefix == prefix.Masked()
	})
}

func isLetterOrDigit(r rune) bool {
	return '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

func headerName(field *string) notation.Setter {
	return notation.Scalar("the name of a header field, or nothing", func(text string) bool {
		*field = text
		return text == "" || clientip.IsFieldName(text)
	}, notation.KindText)
}

// headerNames leaves out Forwarded, whose elements are not plain addresses.
func headerNames(field *[]string) notation.Setter {
	return notation.List(field, "names of header fields that hold only addresses, such as X-Forwarded-For", func(text string) (string, bool) {
		return text, clientip.IsFieldName(text) && !strings.EqualFold(text, "Forwarded")
	})
}

func logLevel(field *slog.Level) notation.Setter {
	return notation.Scalar("debug, info, warn or error", func(text string) bool {
		return slices.Contains([]string{"debug", "info", "warn", "error"}, text) && field.UnmarshalText([]byte(text)) == nil
	}, notation.KindText)
}
