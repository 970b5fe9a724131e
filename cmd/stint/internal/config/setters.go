package config

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/memstore"
)

// A setter takes a value over into a configuration. It calls fault for each value
// (the one given, or an item of it) that is not allowed.
type setter func(v value, fault func(v value, allowed string))

// scalar makes a setter of a function that takes the text of a value over, or
// says what is allowed. The value must be untyped or of one of the kinds.
func scalar(allowed string, set func(text string) bool, kinds ...kind) setter {
	return func(v value, fault func(value, string)) {
		if v.kind != kindUntyped && !slices.Contains(kinds, v.kind) || !set(v.text) {
			fault(v, allowed)
		}
	}
}

// list makes a setter of a list, of a function that reads the text of one item. Each
// item that is not allowed is a fault of its own.
func list[T any](field *[]T, allowed string, parse func(text string) (T, bool)) setter {
	return func(v value, fault func(value, string)) {
		if v.kind == kindUntyped {
			v = v.scalars()
		}
		if v.kind != kindList && v.kind != kindNull {
			fault(v, "a list of "+allowed)
			return
		}
		*field = make([]T, 0, len(v.items))
		for _, item := range v.items {
			parsed, ok := parse(item.text)
			if ok = ok && (item.kind == kindText || item.kind == kindUntyped); !ok {
				fault(item, allowed)
				continue
			}
			*field = append(*field, parsed)
		}
	}
}

func text(field *string) setter {
	return scalar("a text", func(text string) bool {
		*field = text
		return true
	}, kindText)
}

func oneOf(field *string, names ...string) setter {
	return scalar(strings.Join(names, " or "), func(text string) bool {
		*field = text
		return slices.Contains(names, text)
	}, kindText)
}

func boolean(field *bool) setter {
	return scalar("true or false", func(text string) bool {
		*field = strings.EqualFold(text, "true")
		return *field || strings.EqualFold(text, "false")
	}, kindBoolean)
}

func included(set *httplimit.Fields, fields httplimit.Fields) setter {
	var is bool
	read := boolean(&is)
	return func(v value, fault func(value, string)) {
		read(v, fault)
		*set &^= fields
		if is {
			*set |= fields
		}
	}
}

// parseInteger reads a decimal integer as JSON writes it: no sign but a minus, no
// leading zeros, no separators. So nothing reads as one number and means another.
func parseInteger(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == text
}

func integer(field *int, least, most int64) setter {
	return scalar(fmt.Sprintf("%d to %d", least, most), func(text string) bool {
		n, ok := parseInteger(text)
		*field = int(n)
		return ok && n >= least && n <= most
	}, kindInteger)
}

// instances reads a number of processes, or auto, which is 0.
func instances(field *int) setter {
	return scalar("1 to 1000000, or auto", func(text string) bool {
		n, ok := parseInteger(text)
		if text == "auto" {
			n, ok = 0, true
		} else {
			ok = ok && n >= 1 && n <= 1_000_000
		}
		*field = int(n)
		return ok
	}, kindInteger, kindText)
}

func timeout(field *time.Duration) setter {
	return scalar("1ms to 1m", func(text string) bool {
		d, err := stint.ParseDuration(text)
		*field = d
		return err == nil && d >= time.Millisecond && d <= time.Minute
	}, kindText, kindInteger)
}

// between reads a duration within bounds.
func between(field *time.Duration, least, most time.Duration) setter {
	return scalar(fmt.Sprintf("%s to %s", brief(least), brief(most)), func(text string) bool {
		d, err := stint.ParseDuration(text)
		*field = d
		return err == nil && d >= least && d <= most
	}, kindText, kindInteger)
}

// brief writes a duration without the units of which it has none: 10m, not 10m0s.
func brief(d time.Duration) string {
	text := d.String()
	for _, none := range []string{"m0s", "h0m"} {
		if before, found := strings.CutSuffix(text, none); found {
			text = before + none[:1]
		}
	}
	return text
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
	n, ok := parseInteger(digits)
	return n << shift, ok && n >= 0 && n<<shift>>shift == n
}

func size(field *int64) setter {
	return scalar("a number of bytes such as 64MiB or 1GiB, at least 1MiB; or default", func(text string) bool {
		if text == "default" {
			*field = 0
			return true
		}
		n, ok := parseSize(text)
		*field = n
		return ok && n >= memstore.MinMaxBytes
	}, kindText, kindInteger)
}

// sizeBetween reads a number of bytes within bounds, which are whole KiB.
func sizeBetween(field *int64, least, most int64) setter {
	return scalar(fmt.Sprintf("a number of bytes such as 64KiB or 1MiB, %dKiB to %dKiB", least>>10, most>>10), func(text string) bool {
		n, ok := parseSize(text)
		*field = n
		return ok && n >= least && n <= most
	}, kindText, kindInteger)
}

func isAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return false
	}
	n, ok := parseInteger(port)
	return ok && n >= 0 && n <= 65535
}

func address(field *string) setter {
	return scalar("HOST:PORT with a port from 0 to 65535", func(text string) bool {
		*field = text
		return isAddress(text)
	}, kindText)
}

func isOff(text string) bool { return text == "" || text == "off" }

func orOff(field *string) setter {
	return scalar("HOST:PORT with a port from 0 to 65535, or off", func(text string) bool {
		*field = text
		if isOff(text) {
			*field = ""
		}
		return *field == "" || isAddress(text)
	}, kindText, kindNull)
}

// notYet refuses every value but off.
func notYet(what string) setter {
	return scalar("off, since this version does not offer "+what+" yet", isOff, kindText, kindNull)
}

func storeURL(field *string) setter {
	schemes := []string{"redis", "rediss", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster", "unix"}
	return scalar("memory:// or a URL of one of the schemes "+strings.Join(schemes, ", "), func(text string) bool {
		*field = text
		scheme, rest, found := strings.Cut(text, "://")
		return text == memoryURL || found && rest != "" && !strings.HasSuffix(rest, "@") && slices.Contains(schemes, scheme)
	}, kindText)
}

func keyPrefix(field *string) setter {
	return scalar("1 to 64 letters, digits, or any of _ - . : /", func(text string) bool {
		*field = text
		return text != "" && len(text) <= 64 && !strings.ContainsFunc(text, func(r rune) bool {
			return !isLetterOrDigit(r) && !strings.ContainsRune("_-.:/", r)
		})
	}, kindText)
}

func logEncoding(field *string) setter {
	return scalar("packed, zset, stream or default", func(text string) bool {
		*field = text
		if text == "default" {
			*field = ""
		}
		return slices.Contains([]string{"packed", "zset", "stream", "default"}, text)
	}, kindText)
}

func failureMode(field *failover.Mode) setter {
	return scalar("open, closed or local", func(text string) bool {
		mode, err := failover.ParseMode(text)
		*field = mode
		return err == nil
	}, kindText)
}

func prefixes(field *[]netip.Prefix) setter {
	return list(field, "addresses or networks such as 10.0.0.0/8 or fd00::/8, whose host bits are 0", func(text string) (netip.Prefix, bool) {
		if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
			address = address.Unmap()
			return netip.PrefixFrom(address, address.BitLen()), true
		}
		prefix, err := netip.ParsePrefix(text)
		return prefix, err == nil && prefix == prefix.Masked()
	})
}

// isHeaderName reports whether the text can name a field (RFC 9110, section 5.1).
func isHeaderName(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !isLetterOrDigit(r) && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

func isLetterOrDigit(r rune) bool {
	return '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

func headerName(field *string) setter {
	return scalar("the name of a header field, or nothing", func(text string) bool {
		*field = text
		return text == "" || isHeaderName(text)
	}, kindText)
}

// headerNames leaves out Forwarded, whose elements are not plain addresses.
func headerNames(field *[]string) setter {
	return list(field, "names of header fields that hold only addresses, such as X-Forwarded-For", func(text string) (string, bool) {
		return text, isHeaderName(text) && !strings.EqualFold(text, "Forwarded")
	})
}

func logLevel(field *slog.Level) setter {
	return scalar("debug, info, warn or error", func(text string) bool {
		return slices.Contains([]string{"debug", "info", "warn", "error"}, text) && field.UnmarshalText([]byte(text)) == nil
	}, kindText)
}
