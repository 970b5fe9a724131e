package simulate

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file/document"
)

// errNoEvent says that a line is none, and not malformed.
var errNoEvent = errors.New("no event")

// combined is the log format of nginx and Apache of that name, and the common one, without its last
// two fields. A line is host ident user [time] "request" status size, and in the combined format
// also "referer" "user agent". Logs of a busy server repeat each second many times, so that the
// last parsed text of each second of a minute is kept in times: parsing a time is most of what a
// line costs.
type combined struct {
	reader *Reader
	// whether a line had the last two fields: one without is cut
	full  bool
	times [60]struct {
		text string
		at   stint.Instant
	}
}

// parse takes the fields from left to right. The user may hold blanks, which is why it is what
// stands before " [", and quotes within "request" are escaped by a backslash.
func (c *combined) parse(line string, ev *Event) error {
	address, rest, ok := strings.Cut(line, " ")
	at := strings.Index(rest, " [")
	if !ok || at < 0 {
		return errors.New("no [time]")
	}
	user := rest[:at]
	if space := strings.IndexByte(user, ' '); space >= 0 {
		user = user[space+1:]
	}
	clock, rest, ok := strings.Cut(rest[at+2:], "] \"")
	if !ok {
		return errors.New("no \"request\" behind [time]")
	}
	if err := c.time(clock, ev); err != nil {
		return err
	}
	request, rest, ok := cutQuote(rest)
	if !ok {
		return errors.New("no end of \"request\"")
	}
	if err := requestLine(request, &ev.Request); err != nil {
		return err
	}
	rest = strings.TrimPrefix(rest, " ")
	status, rest, _ := strings.Cut(rest, " ")
	if err := parseStatus(status, ev); err != nil {
		return err
	}
	size, rest, more := strings.Cut(rest, " ")
	if size == "" || size != "-" && strings.Trim(size, "0123456789") != "" {
		return errors.New("no size behind the status")
	}
	if ev.Request.Address = c.reader.address(address); user != "-" {
		ev.Request.User = user
	}
	if !more {
		if c.full {
			return errors.New("no \"referer\" behind the size, as lines before have it")
		}
		return nil
	}
	return c.agent(rest, ev)
}

// agent reads the last two fields.
func (c *combined) agent(rest string, ev *Event) error {
	referer, rest, ok := cutQuote(strings.TrimPrefix(rest, "\""))
	if !ok || !strings.HasPrefix(rest, " \"") {
		return errors.New("no \"user agent\" behind \"referer\"")
	}
	agent, _, ok := cutQuote(rest[2:])
	if !ok {
		return errors.New("no end of \"user agent\"")
	}
	c.full = true
	c.reader.header(ev, agent, referer)
	return nil
}

// time reads dd/Mon/yyyy:hh:mm:ss zone, to the second. The two digits of the second choose the
// entry of the cache; a malformed text lands in some entry, too, and is never stored there.
func (c *combined) time(text string, ev *Event) error {
	ev.Whole = true
	const layout = "02/Jan/2006:15:04:05 -0700"
	if len(text) != len(layout) {
		return fmt.Errorf("time %q; expected one such as 10/Oct/2000:13:55:36 -0700", text)
	}
	known := &c.times[(int(text[18]-'0')*10+int(text[19]-'0'))&0xff%60]
	if known.text == text {
		ev.Time = known.at
		return nil
	}
	t, err := time.Parse(layout, text)
	if err != nil || t.Unix() < 0 {
		return fmt.Errorf("time %q; expected one such as 10/Oct/2000:13:55:36 -0700", text)
	}
	ev.Time = stint.Instant(t.UnixMicro())
	known.text, known.at = text, ev.Time
	return nil
}

// cutQuote cuts a text at its first quote that no backslash escapes. A quote is escaped if an odd
// number of backslashes stands before it: \\" ends the text.
func cutQuote(text string) (quoted, rest string, found bool) {
	for i := 0; ; i++ {
		next := strings.IndexByte(text[i:], '"')
		if next < 0 {
			return text, "", false
		}
		i += next
		escapes := 0
		for j := i - 1; j >= 0 && text[j] == '\\'; j-- {
			escapes++
		}
		if escapes%2 == 0 {
			return text[:i], text[i+1:], true
		}
	}
}

// requestLine reads METHOD TARGET PROTOCOL. The target may hold blanks in what broken clients send,
// so that the protocol is what stands behind the last blank.
func requestLine(text string, r *rules.Request) error {
	method, rest, _ := strings.Cut(text, " ")
	end := strings.LastIndexByte(rest, ' ')
	if end <= 0 || method == "" || !strings.HasPrefix(rest[end+1:], "HTTP/") {
		return fmt.Errorf("request %.100q; expected METHOD PATH PROTOCOL", text)
	}
	r.Method = method
	return target(rest[:end], r)
}

// target is a path, or a URL, of which the host is taken too. An absolute URL is what clients of a
// proxy send, and * what OPTIONS may ask for (RFC 9112, section 3.2).
func target(text string, r *rules.Request) error {
	if strings.HasPrefix(text, "/") || text == "*" {
		r.Path = unescape(text)
		return nil
	}
	u, err := url.Parse(text)
	if err != nil {
		return fmt.Errorf("target %.100q: no path or URL", text)
	}
	r.Host, r.Path = u.Host, u.EscapedPath()
	return nil
}

// unescape undoes what log formats do to bytes: \x22, \", \\.
func unescape(text string) string {
	if strings.IndexByte(text, '\\') < 0 {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) && text[i+1] == 'x' {
			if n, err := strconv.ParseUint(text[i+2:i+4], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		if text[i] == '\\' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\') {
			i++
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// parseStatus reads a status of up to three digits. "-" is none: the client went before it was
// answered.
func parseStatus(text string, ev *Event) error {
	if len(text) == 1 && text[0] == '-' {
		return nil
	}
	n := 0
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' || len(text) > 3 {
			n = -1
			break
		}
		n = n*10 + int(text[i]-'0')
	}
	if n < 0 || text == "" {
		return fmt.Errorf("status %.20q; expected such as 200", text)
	}
	ev.Status = n
	return nil
}

// header gives the request the fields that logs have. It makes a map for each request, which is why
// readers do it only when rules ask for header fields.
func (r *Reader) header(ev *Event, agent, referer string) {
	if !r.options.Headers {
		return
	}
	ev.Request.Header = http.Header{}
	for name, value := range map[string]string{"User-Agent": agent, "Referer": referer} {
		if value != "" && value != "-" {
			ev.Request.Header[name] = []string{unescape(value)}
		}
	}
}

// parseALB reads a line of an AWS Application Load Balancer. Its fields are divided by blanks, and
// those that may hold one are quoted. Newer logs have more fields at the end, of which created is
// when the request came; the time in the second field is that of the answer.
func (r *Reader) parseALB(line string, ev *Event) error {
	const client, status, request, agent, domain, created = 3, 8, 12, 13, 18, 21
	var fields [created + 1]string
	n := 0
	for ; n < len(fields) && line != ""; n++ {
		if quoted := strings.HasPrefix(line, "\""); quoted {
			var ok bool
			if fields[n], line, ok = cutQuote(line[1:]); !ok {
				return errors.New("no end of a quoted field")
			}
			line = strings.TrimPrefix(line, " ")
			continue
		}
		fields[n], line, _ = strings.Cut(line, " ")
	}
	if n <= request {
		return fmt.Errorf("%d fields; expected at least %d", n, request+1)
	}
	when := fields[1] // of the answer, in old logs
	if n > created {
		when = fields[created]
	}
	if err := parseTime(when, ev); err != nil {
		return err
	}
	if err := parseStatus(fields[status], ev); err != nil {
		return err
	}
	if err := requestLine(fields[request], &ev.Request); err != nil {
		return err
	}
	ev.Request.Address = r.address(fields[client])
	if ev.Request.Host == "" && fields[domain] != "-" {
		ev.Request.Host = fields[domain]
	}
	r.header(ev, fields[agent], "")
	return nil
}

// parseTime reads a time: RFC 3339, with a blank in place of the T too, or a number since 1970 in
// seconds, or, as their size tells, in milliseconds, microseconds or nanoseconds. A number below
// 1e11 counts seconds, which is the year 5138; below 1e14 milliseconds, below 1e17 microseconds,
// and from there on nanoseconds. Without a fraction a time is known to the second only, see
// Event.Whole.
func parseTime(text string, ev *Event) error {
	fault := fmt.Errorf("time %.40q; expected RFC 3339 such as 2026-01-02T15:04:05.123Z, or seconds since 1970", text)
	whole, fraction, _ := strings.Cut(text, ".")
	if n, err := strconv.ParseUint(whole, 10, 63); err == nil && strings.Trim(fraction, "0123456789") == "" {
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
	if len(text) > 10 && text[10] == ' ' {
		text = text[:10] + "T" + text[11:]
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		if t, err = time.Parse("2006-01-02T15:04:05", text); err != nil {
			return fault
		}
	}
	if t.Unix() < 0 || t.Year() > 9999 {
		return fault
	}
	ev.Time, ev.Whole = stint.Instant(t.UnixMicro()), !strings.Contains(text, ".")
	return nil
}

// columns is CSV, whose first line names the columns.
type columns struct {
	reader *Reader
	names  []string
}

// parse splits a line at its commas, and reads it as RFC 4180 says only if it has a quote, which
// few have. A line that repeats the names is where another file begins.
func (c *columns) parse(line string, ev *Event) error {
	fields := strings.Split(line, ",")
	if strings.IndexByte(line, '"') >= 0 {
		var err error
		if fields, err = csv.NewReader(strings.NewReader(line)).Read(); err != nil {
			return err
		}
	}
	if slices.Equal(fields, c.names) { // of another file
		return errNoEvent
	}
	if c.names == nil {
		for i := range fields {
			fields[i] = strings.TrimSpace(strings.TrimPrefix(fields[i], "\ufeff"))
		}
		if !slices.Contains(fields, "time") {
			return errors.New("the first line names no column time; expected columns such as time,key,cost")
		}
		c.names = fields
		return errNoEvent
	}
	if len(fields) != len(c.names) {
		return fmt.Errorf("%d columns; expected %d", len(fields), len(c.names))
	}
	for i, name := range c.names {
		if err := c.reader.set(name, fields[i], ev); err != nil {
			return err
		}
	}
	return nil
}

// set gives an event what a column, or a field of a JSON line, says. Other names are attributes.
func (r *Reader) set(name, value string, ev *Event) error {
	if value == "" && name != "time" {
		return nil
	}
	q := &ev.Request
	switch name {
	case "time":
		return parseTime(value, ev)
	case "key":
		q.Address = value
	case "ip":
		q.Address = r.address(value)
	case "user":
		q.User = value
	case "api_key":
		q.APIKey = value
	case "method":
		q.Method = value
	case "host":
		q.Host = value
	case "path":
		return target(value, q)
	case "status":
		return parseStatus(value, ev)
	case "hold":
		return parseHold(value, ev)
	case "actual":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 || n > stint.MaxPermits {
			return fmt.Errorf("actual %.20q; expected 0 to %d", value, stint.MaxPermits)
		}
		ev.held().Actual = n
	case CostAttribute:
		if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < 1 || n > stint.MaxPermits {
			return fmt.Errorf("cost %.20q; expected 1 to %d", value, stint.MaxPermits)
		}
		if value != "1" {
			q.SetDefault(name, value)
		}
	default:
		q.SetDefault(name, value)
	}
	return nil
}

// parseHold reads how long a request holds: a duration, or seconds.
func parseHold(text string, ev *Event) error {
	unit := ""
	if strings.Trim(text, "0123456789.") == "" {
		unit = "s"
	}
	d, err := stint.ParseDuration(text + unit)
	if err != nil || d < 0 || d > stint.MaxPeriod {
		return fmt.Errorf("hold %.20q; expected 0s to 366d, such as 2.5s, or a number of seconds", text)
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

// A jsonLine is what lines of Caddy and Envoy, and our own, have: the first of several names that
// is there counts.
type jsonLine struct {
	// Caddy's.
	TS       any `json:"ts"`
	Duration any `json:"duration"` // in seconds
	Request  *struct {
		RemoteIP string              `json:"remote_ip"`
		ClientIP string              `json:"client_ip"`
		Method   string              `json:"method"`
		Host     string              `json:"host"`
		URI      string              `json:"uri"`
		Headers  map[string][]string `json:"headers"`
	} `json:"request"`
	UserID string `json:"user_id"`
	// Envoy's, whose time is when the request came.
	StartTime    string `json:"start_time"`
	Authority    string `json:"authority"`
	ResponseCode any    `json:"response_code"`
	Downstream   string `json:"downstream_remote_address"`
	Forwarded    string `json:"x_forwarded_for"`
	UserAgent    string `json:"user_agent"`
	// Our own, and some of Envoy's.
	Time       any            `json:"time"`
	Key        string         `json:"key"`
	Cost       any            `json:"cost"`
	Hold       any            `json:"hold"`
	Actual     any            `json:"actual"`
	IP         string         `json:"ip"`
	User       string         `json:"user"`
	APIKey     string         `json:"api_key"`
	Method     string         `json:"method"`
	Host       string         `json:"host"`
	Path       string         `json:"path"`
	Status     any            `json:"status"`
	Headers    http.Header    `json:"headers"`
	Attributes map[string]any `json:"attributes"`
}

// parseJSON reads one JSON object: a line with the columns of CSV as members, one of Caddy's access
// log, which has a member request, or one of Envoy's. Names that are not known are left out;
// attributes stand in a member of their own. Caddy logs when a request was answered, so that its
// duration is taken off.
func (r *Reader) parseJSON(line string, ev *Event) error {
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber()
	var l jsonLine
	if err := d.Decode(&l); err != nil {
		return errors.New(document.JSONFault(err))
	}
	if err := d.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	if c := l.Request; c != nil {
		l.Time, l.IP, l.User, l.Method, l.Host, l.Path, l.Headers = l.TS, first(c.ClientIP, c.RemoteIP), l.UserID, c.Method,
			c.Host, c.URI, c.Headers
	} else {
		hop, _, _ := strings.Cut(l.Forwarded, ",") // which a proxy before Envoy may have been told
		l.IP, l.Host = first(l.IP, l.Downstream, strings.TrimSpace(hop)), first(l.Host, l.Authority)
	}
	if l.StartTime != "" {
		l.Time = l.StartTime
	}
	if l.Status == nil {
		l.Status = l.ResponseCode
	}
	for _, field := range []struct {
		name  string
		value string
	}{
		{"time", text(l.Time)},
		{"key", l.Key},
		{"ip", l.IP},
		{"user", l.User},
		{"api_key", l.APIKey},
		{"method", l.Method},
		{"host", l.Host},
		{"path", l.Path},
		{"status", text(l.Status)},
		{CostAttribute, text(l.Cost)},
		{"hold", text(l.Hold)},
		{"actual", text(l.Actual)},
	} {
		if err := r.set(field.name, field.value, ev); err != nil {
			return err
		}
	}
	for name, value := range l.Attributes {
		ev.Request.SetDefault(name, text(value))
	}
	if r.options.Headers {
		r.header(ev, l.UserAgent, "")
		for name, lines := range l.Headers {
			ev.Request.Header[http.CanonicalHeaderKey(name)] = lines
		}
	}
	if l.Request != nil { // Caddy's time is when it had answered
		if took, err := strconv.ParseFloat(text(l.Duration), 64); err == nil && took > 0 && took < 1e6 && !ev.Whole {
			ev.Time = max(0, ev.Time-stint.Instant(took*1e6))
		}
	}
	return nil
}

// first is the first of some texts that says something: "-" is nothing in logs.
func first(texts ...string) string {
	for _, text := range texts {
		if text != "" && text != "-" {
			return text
		}
	}
	return ""
}

// text is a JSON value as a text, "" for null.
func text(value any) string {
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}
