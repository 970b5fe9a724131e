package simulate

import (
	"cmp"
	_ "embed" // the names of fields
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/rules"
)

// fieldNames has a line for each field that a log may have: what it is called here, and then the
// names that logs have for it, the one that counts first.
//
//go:embed fields.txt
var fieldNames string

// fields are those of [fieldNames], each with its names behind it.
type fields [][]string

// fieldsOf are all fields. Names that are given for some take the place of the known ones, and if only
// these count, of all.
func (r *Reader) fieldsOf(given map[string][]string, only bool) (made fields) {
	for line := range strings.Lines(fieldNames) {
		of := strings.Fields(line)
		if of[0] == "forwarded" {
			for _, header := range r.proxies {
				lower := strings.ToLower(header)
				under := strings.ReplaceAll(lower, "-", "_")
				of = append(of, "http_"+under, under, lower, header, "request_"+header, "cs("+header+")")
			}
		}
		if names, ok := given[of[0]]; ok || only {
			of = append(of[:1], names...)
		}
		made = append(made, of)
	}
	return made
}

// pick says which field each of some names is, "" if it is none. Of several names of a field the
// first one counts.
func (f fields) pick(names []string) []string {
	picked := make([]string, len(names))
	for _, of := range f {
		for _, name := range of[1:] {
			if i := slices.Index(names, name); i >= 0 {
				picked[i] = of[0]
				break
			}
		}
	}
	return picked
}

// has reports whether fields say when, and who.
func (r *Reader) has(picked []string) error {
	if !slices.Contains(picked, "time") && !slices.Contains(picked, "date") {
		return r.lacks("time")
	}
	for _, who := range []string{"client", "forwarded", "key", "user", "api_key"} {
		if slices.Contains(picked, who) {
			return nil
		}
	}
	return r.lacks("client")
}

// lacks is the fault of a line, or a format, without a field.
func (r *Reader) lacks(field string) error {
	found := r.about.names
	if r.about.object != nil {
		found = slices.Sorted(maps.Keys(r.about.object))
	}
	var names []string
	for _, of := range r.about.fields {
		for _, name := range of[1:] {
			if (of[0] == field || field == "client" && (of[0] == "key" || of[0] == "forwarded")) && name[0] != '%' {
				names = append(names, name)
			}
		}
	}
	return faultf("no %s; looked for %s; found %.400s", field, strings.Join(names, ", "), strings.Join(found, ", "))
}

// A fault of a line is worded only when somebody reads it: while a format is looked for, most lines
// have one.
type fault struct {
	format string
	values []any
}

func faultf(format string, values ...any) error { return &fault{format, values} }

func (f *fault) Error() string { return fmt.Sprintf(f.format, f.values...) }

// A lineRead is what is known of a line until it ends.
type lineRead struct {
	when, date, zone, fraction string
	client, forwarded, query   string
	took                       string
	garbled                    string // what should be a request, and is not
	found                      int    // fields
	unbelieved                 bool   // whether hops before the client are named
}

// About a line is known what its format looks for, and the names that it has: of columns, variables
// or members.
type about struct {
	fields fields
	names  []string
	object map[string]any
}

// keep says which fields are kept until the line ends.
func (r *Reader) keep() map[string]*string {
	l := &r.line
	return map[string]*string{
		"time": &l.when, "date": &l.date, "zone": &l.zone, "fraction": &l.fraction, "client": &l.client,
		"forwarded": &l.forwarded, "query": &l.query, "took": &l.took,
	}
}

// set keeps what a field says, or gives it to an event. An unknown field is left out.
func (r *Reader) set(kept *string, field, value string, ev *Event) error {
	l, q := &r.line, &ev.Request
	l.found++
	switch {
	case field == "" || value == "" || value == "-" && field != "client":
		return nil
	case kept != nil:
		*kept = value
		return nil
	}
	switch field {
	case "key":
		q.Address = value
	case "user":
		q.User = unescape(value)
	case "api_key":
		q.APIKey = value
	case "request":
		l.request(value, q)
	case "method":
		q.Method = value
	case "host":
		if strings.Trim(value, letters+".-_:[]") != "" {
			return faultf("host %.60q; expected the name of a host, or an address", value)
		}
		q.Host = cmp.Or(q.Host, value) // that of a URL counts
	case "path":
		l.target(value, q)
	case "status":
		return parseStatus(value, ev)
	case "size":
		if !isNumber(value) {
			return faultf("size %.20q; expected a number", value)
		}
	case "user_agent":
		r.header(ev, "User-Agent", value)
	case "referer":
		r.header(ev, "Referer", value)
	case "hold":
		return parseHold(value, ev)
	case "actual":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 || n > bounds.MaxPermits {
			return faultf("actual %.20q; expected 0 to %d", value, bounds.MaxPermits)
		}
		ev.held().Actual = n
	case CostAttribute:
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < 1 || n > bounds.MaxPermits {
			return faultf("cost %.20q; expected 1 to %d", value, bounds.MaxPermits)
		}
		if value != "1" {
			q.SetDefault(field, value)
		}
	}
	return nil
}

// end puts together what a line says in several fields, once all of it is read.
func (r *Reader) end(ev *Event) (err error) {
	l, q := &r.line, &ev.Request
	when := l.when
	if l.date != "" && !strings.Contains(when, "-") {
		when = strings.TrimSpace(l.date + " " + when)
	}
	if l.fraction != "" {
		when += "." + l.fraction
	}
	if l.zone != "" {
		when += " " + l.zone
	}
	if when == "" {
		return r.lacks("time")
	}
	if err := r.time(when, ev); err != nil {
		return err
	}
	// Caddy's time is when it had answered.
	if l.took != "" && !ev.Whole {
		if took, err := strconv.ParseFloat(l.took, 64); err == nil && took > 0 && took < 1e6 {
			ev.Time = max(0, ev.Time-stint.Instant(took*1e6))
		}
	}
	if l.query != "" && !strings.Contains(q.Path, "?") {
		q.Path = cmp.Or(q.Path, "/") + "?" + strings.TrimPrefix(l.query, "?")
	}
	if h := ev.Hold; h != nil && h.For < 0 {
		return faultf("actual %d without hold", h.Actual)
	}
	if l.client != "" || l.forwarded != "" {
		if q.Address, err = r.client(l.client, l.forwarded); err != nil {
			return err
		}
	}
	if q.Address == "" && (r.options.Address || q.User == "" && q.APIKey == "" && len(q.Attributes) == 0) {
		return r.lacks("client")
	}
	return nil
}

// client is the key of a client: of the address that a log has, or of a list of hops, whose last
// one is the peer. What stands before a hop is believed if that is a trusted proxy.
func (r *Reader) client(peer, forwarded string) (string, error) {
	hops := peer
	if forwarded != "" {
		hops = strings.TrimSuffix(forwarded+","+peer, ",")
	} else if addr, err := netip.ParseAddr(peer); err == nil && addr.Is4() {
		return peer, nil // which is written in one way only
	}
	i := strings.LastIndexByte(hops, ',')
	if i < 0 {
		return r.address(hops)
	}
	last := strings.TrimSpace(hops[i+1:])
	if r.resolver.TrustsPeer(last) {
		return r.resolver.Key(last, http.Header{r.proxies[0]: {hops[:i]}}), nil
	}
	r.line.unbelieved = true
	return r.address(last)
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// address is the key of a client's address as logs write it, with or without a port, or of a host's
// name.
func (r *Reader) address(text string) (string, error) {
	if addr, ok := clientip.Parse(text); ok {
		return r.resolver.KeyOf(addr), nil
	}
	if text != "unix:" && strings.Trim(text, letters+".-_") != "" || strings.Trim(text, ".-_") == "" {
		return "", faultf("client %.60q; expected an address, or the name of a host without a port", text)
	}
	return text, nil
}

// request reads METHOD TARGET PROTOCOL. The target may hold blanks in what broken clients send, so
// that the protocol is what stands behind the last blank; HTTP/0.9 has none. Whatever else clients
// send is a request, too, of which no more is known.
func (l *lineRead) request(text string, q *rules.Request) {
	method, rest, _ := strings.Cut(text, " ")
	if end := strings.LastIndexByte(rest, ' '); end > 0 && strings.HasPrefix(rest[end+1:], "HTTP/") {
		rest = rest[:end]
	}
	if rest == "" || !clientip.IsFieldName(method) {
		l.garbled = text
		return
	}
	q.Method = method
	if method == http.MethodConnect {
		q.Host = rest
		return
	}
	l.target(rest, q)
}

// target is a path, or a URL, of which the host is taken too. An absolute URL is what clients of a
// proxy send, and * what OPTIONS may ask for (RFC 9112, section 3.2).
func (l *lineRead) target(text string, q *rules.Request) {
	if strings.HasPrefix(text, "/") || text == "*" {
		q.Path = unescape(text)
		return
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		l.garbled = text
		return
	}
	q.Host, q.Path = u.Host, u.EscapedPath()
}

// header gives the request a header field that the log has. It makes a map for each request, which
// is why readers do it only when rules ask for header fields.
func (r *Reader) header(ev *Event, name, value string) {
	if !r.options.Headers {
		return
	}
	if ev.Request.Header == nil {
		ev.Request.Header = http.Header{}
	}
	ev.Request.Header.Add(name, unescape(value))
}

// unescape undoes what log formats do to bytes: \x22, \u0022, \", \\, \/.
func unescape(text string) string {
	if strings.IndexByte(text, '\\') < 0 {
		return text
	}
	var b strings.Builder
	for text = strings.ReplaceAll(text, `\/`, "/"); text != ""; {
		char, wide, rest, err := strconv.UnquoteChar(text, '"')
		switch {
		case err != nil:
			b.WriteByte(text[0])
			rest = text[1:]
		case wide:
			b.WriteRune(char)
		default:
			b.WriteByte(byte(char))
		}
		text = rest
	}
	return b.String()
}

// isNumber reports whether a text has digits only.
func isNumber(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return true
}

// parseStatus reads a status of up to three digits.
func parseStatus(text string, ev *Event) error {
	if !isNumber(text) || len(text) > 3 {
		return faultf("status %.20q; expected such as 200", text)
	}
	ev.Status, _ = strconv.Atoi(text)
	return nil
}

// parseHold reads how long a request holds: a duration, or seconds.
func parseHold(text string, ev *Event) error {
	unit := ""
	if strings.Trim(text, "0123456789.") == "" {
		unit = "s"
	}
	d, err := notation.ParseDuration(text + unit)
	if err != nil || d < 0 || d > bounds.MaxPeriod {
		return faultf("hold %.20q; expected 0s to 366d, such as 2.5s, or a number of seconds", text)
	}
	ev.held().For = d
	return nil
}

// held is the event's hold, made without a length if there is none.
func (ev *Event) held() *Hold {
	if ev.Hold == nil {
		ev.Hold = &Hold{For: -1, Actual: -1}
	}
	return ev.Hold
}

const commonTime = "02/Jan/2006:15:04:05 -0700"

// layouts are how times are written, beside numbers. Fractions of a second may follow each.
const layouts = time.RFC3339 + "|" + commonTime + "|02/Jan/2006:15:04:05|02/Jan/2006 15:04:05 -0700|" +
	"2006-01-02T15:04:05Z0700|2006-01-02T15:04:05 -0700|2006-01-02T15:04:05|" + time.RFC1123

// time reads a time, or a number since 1970 in seconds, or, as its size tells, in milliseconds,
// microseconds or nanoseconds: below 1e11 it counts seconds, which is the year 5138, below 1e14
// milliseconds, below 1e17 microseconds. Without a fraction a time is known to the second only, see
// Event.Whole. Logs of a busy server repeat each second many times, and parsing a time is most of
// what a line costs, so that the last text of each second of a minute is kept.
func (r *Reader) time(text string, ev *Event) error {
	known := &r.times[0]
	if len(text) == len(commonTime) {
		known = &r.times[(int(text[18]-'0')*10+int(text[19]-'0'))&0xff%60]
		if known.text == text {
			ev.Time, ev.Whole = known.at, true
			return nil
		}
	}
	whole, fraction, _ := strings.Cut(text, ".")
	if n, err := strconv.ParseUint(whole, 10, 63); err == nil && isNumber(fraction) {
		switch {
		case n < 1e11:
			micro, _ := strconv.ParseUint((fraction + "000000")[:6], 10, 63)
			ev.Time, ev.Whole = stint.Instant(n*1e6+micro), fraction == ""
		case n < 1e14:
			ev.Time = stint.Instant(n * 1e3)
		case n < 1e17:
			ev.Time = stint.Instant(n)
		default:
			ev.Time = stint.Instant(n / 1e3)
		}
		return nil
	}
	written := text
	if len(text) > 10 && text[4] == '-' && text[10] == ' ' {
		written = text[:10] + "T" + text[11:]
	}
	for layout := range strings.SplitSeq(r.layouts+layouts, "|") {
		t, err := time.Parse(layout, written)
		if err != nil || t.Unix() < 0 || t.Year() > 9999 {
			continue
		}
		_, digits, _ := strings.Cut(text, ",") // ISO 8601 knows it before a fraction, RFC 1123 behind the day of the week
		ev.Time = stint.Instant(t.UnixMicro())
		ev.Whole = fraction == "" && (digits == "" || digits[0] == ' ')
		if len(text) == len(commonTime) && ev.Whole {
			known.text, known.at = text, ev.Time
		}
		return nil
	}
	return faultf("time %.40q; expected such as 10/Oct/2000:13:55:36 -0700, 2026-01-02T15:04:05.123Z, "+
		"or seconds since 1970", text)
}
