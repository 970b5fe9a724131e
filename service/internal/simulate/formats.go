package simulate

import (
	_ "embed" // the formats
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
)

// knownFormats has a line for each format that is known by name: its name, and a text as
// [ReaderOptions.Format] takes. A name may have several, and of formats that are as good the first
// one counts.
//
//go:embed formats.txt
var knownFormats string

// Formats are the names of the formats that are known.
func Formats() (names []string) {
	for line := range strings.Lines(knownFormats) {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}
	return slices.Compact(names)
}

const formatForms = "a name, or nginx:LOG_FORMAT, apache:LOGFORMAT, json:FIELD=NAME,..., csv:, tsv: or w3c: " +
	"with FIELD=NAME,... or the names of columns"

// errNoEvent says that a line is none, and not malformed.
var errNoEvent = errors.New("no event")

// A layout is a format that lines may have. Its parsers know what lines before said, so that each
// log has a new one.
type layout struct {
	name string
	new  func() parser
}

// layouts are those of a format, of all that are known if it is "".
func (r *Reader) layoutsOf(format string) (made []layout, err error) {
	for line := range strings.Lines(knownFormats) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if format == "" || format == name || format == "json" && strings.HasPrefix(text, "json:") {
			parser, err := r.compile(text, true)
			if err != nil {
				return nil, err
			}
			made = append(made, layout{name, parser})
		}
	}
	if len(made) > 0 {
		return made, nil
	}
	parser, err := r.compile(format, false)
	return []layout{{format, parser}}, err
}

// compile makes the parsers of a format. One that is known by name and names its fields has no others,
// since each name that is looked for in JSON costs time.
func (r *Reader) compile(format string, known bool) (func() parser, error) {
	kind, text, _ := strings.Cut(format, ":")
	switch kind {
	case "nginx":
		return r.pattern(format, text)
	case "apache":
		return r.pattern(format, r.apache(text))
	case "json", "csv", "tsv", "w3c":
	default:
		return nil, stint.Invalid("format", format, strings.Join(Formats(), ", ")+"; "+formatForms)
	}
	given, names := map[string][]string{}, []string(nil)
	for part := range strings.SplitSeq(text, ",") {
		field, alternatives, named := strings.Cut(part, "=")
		switch there := slices.ContainsFunc(r.known, func(of []string) bool { return of[0] == field }); {
		case part == "":
		case named && there && !strings.Contains("|"+alternatives+"|", "||"):
			given[field] = strings.Split(alternatives, "|")
		case named || kind == "json":
			return nil, stint.Invalid("format", format, "FIELD=NAME,... with fields such as time, client, user, path, host")
		default:
			names = append(names, part)
		}
	}
	fields := r.known
	if len(given) > 0 {
		fields = r.fieldsOf(given, known)
	}
	if kind == "json" {
		return func() parser {
			return func(line string, ev *Event) error { return r.json(fields, line, ev) }
		}, nil
	}
	return func() parser {
		t := &columns{reader: r, kind: kind, about: about{fields: fields}}
		if names != nil {
			t.use(names)
		}
		return t.parse
	}, nil
}

// A pattern is a format of whole lines: texts, and variables between them.
type linePattern struct {
	reader *Reader
	head   string
	parts  []linePart
	open   bool // more may follow behind a blank
	about  about
}

// A linePart is a variable, and the text behind it.
type linePart struct {
	name, field, until string
	kept               *string // where the value is kept, nil if it is not
	first, no          byte    // that text's first byte, 0 if there is none, and the one before it where it ends nothing
	one                bool    // whether the first byte of that text ends the value
	blank              bool    // whether that text ends with a blank
	open               bool    // whether more may follow behind a blank, if there is no text
}

// variable is $name or ${name}.
var variable = regexp.MustCompile(`\$(?:\{([^}]+)\}|(\w+))`)

// pattern compiles the text of nginx's log_format. Its strings may be quoted as in nginx.conf, with
// escape=... before them.
func (r *Reader) pattern(format, text string) (func() parser, error) {
	if rest, ok := strings.CutPrefix(text, "escape="); ok {
		_, text, _ = strings.Cut(rest, " ")
	}
	if quoted := strings.TrimRight(strings.TrimSpace(text), ";"); strings.HasPrefix(quoted, "'") {
		text = strings.Trim(adjacent.ReplaceAllString(quoted, ""), "'")
	}
	p := &linePattern{reader: r, about: about{fields: r.known}}
	text, p.open = strings.CutSuffix(text, " $rest")
	found := variable.FindAllStringSubmatchIndex(text, -1)
	if found == nil {
		return nil, stint.Invalid("format", format, "variables such as $remote_addr or %h, for the time and the client too")
	}
	p.head = text[:found[0][0]]
	for i, at := range found {
		name, end := variable.ReplaceAllString(text[at[0]:at[1]], "$1$2"), len(text)
		if i+1 < len(found) {
			if end = found[i+1][0]; end == at[1] {
				return nil, stint.Invalid("format", format,
					"a text between "+text[at[0]:at[1]]+" and the next variable, so that it is known where one ends")
			}
		}
		part := linePart{name: "$" + name, until: text[at[1]:end]}
		if name[0] == '%' { // as Apache has it
			part.name = name
		}
		p.about.names, p.parts = append(p.about.names, name), append(p.parts, part)
	}
	for i, field := range r.known.pick(p.about.names) {
		part := &p.parts[i]
		part.field, part.kept, part.open, part.blank = field, r.kept[field], p.open, strings.HasSuffix(part.until, " ")
		if !r.options.Headers && (field == "user_agent" || field == "referer") {
			part.field = "" // which costs time for each line
		}
		if part.until != "" {
			part.first = part.until[0]
		}
		switch part.first {
		case '"':
			part.no = '\\'
		case ' ':
			part.no = ','
		}
		part.one = part.first == '"' || slices.Contains([]string{"user", "client", "host"}, field)
	}
	r.line, r.about = lineRead{}, &p.about
	if err := r.has(r.known.pick(p.about.names)); err != nil {
		return nil, stint.Invalid("format", format, "variables for the time and the client: "+err.Error())
	}
	return func() parser { return p.parse }, nil
}

// adjacent are two strings of nginx.conf that are one.
var adjacent = regexp.MustCompile(`'\s*'`)

// parse takes a line from left to right: a variable ends where the text behind it begins.
func (p *linePattern) parse(line string, ev *Event) error {
	r := p.reader
	r.line, r.about = lineRead{}, &p.about
	if p.head != "" && !strings.HasPrefix(line, p.head) {
		return faultf("no %q at the beginning", p.head)
	}
	rest := line[len(p.head):]
	for i := range p.parts {
		part := &p.parts[i]
		value, after, ok := part.cut(rest)
		if !ok && part.until == "" {
			return faultf("no end of the line behind %s", part.name)
		} else if !ok {
			return faultf("no %q behind %s", part.until, part.name)
		}
		rest = after
		if part.field == "" || part.kept != nil && value != "-" { // as set does
			if r.line.found++; value != "" && part.kept != nil {
				*part.kept = value
			}
			continue
		}
		if err := r.set(part.kept, part.field, value, ev); err != nil {
			return err
		}
	}
	if rest != "" && (!p.open || rest[0] != ' ') {
		return faultf("%.40q behind the end of the format", rest)
	}
	return r.end(ev)
}

// cut cuts the variable's value off a line, and the text behind it. A quote that a backslash escapes
// does not end a value, nor does a blank behind the comma of a list. A colon is the last one of a
// word, as IPv6 addresses have several. A value without quotes or brackets is not empty, and those of
// users, clients and the last variable have no blanks.
func (p *linePart) cut(line string) (value, rest string, ok bool) {
	at := 0
	switch p.first {
	case 0:
		value, _, more := strings.Cut(line, " ")
		return value, line[len(value):], value != "" && (p.open || !more)
	case ':':
		if word, _, _ := strings.Cut(line, " "); p.until == ":" {
			if at = strings.LastIndexByte(word, ':'); at < 0 {
				return "", "", false
			}
		}
	}
	for ; ; at++ {
		next := strings.IndexByte(line[at:], p.first)
		if next < 0 {
			return "", "", false
		}
		at += next
		if at > 0 && line[at-1] == p.no && (p.no == ',' || escaped(line[:at])) {
			continue
		}
		if len(p.until) == 1 || strings.HasPrefix(line[at:], p.until) {
			break
		}
		if p.one {
			return "", "", false
		}
	}
	rest = line[at+len(p.until):]
	for p.blank && rest != "" && rest[0] == ' ' {
		rest = rest[1:] // some logs align columns
	}
	return line[:at], rest, at > 0 || p.first != ' '
}

// escaped reports whether what follows a text is escaped: by an odd number of backslashes, as \\" ends
// a quoted text.
func escaped(text string) bool {
	return (len(text)-len(strings.TrimRight(text, `\`)))%2 == 1
}

// directive is one of Apache's: its argument, and its letter.
var directive = regexp.MustCompile(`%[!\d,]*[<>]?(?:\{([^}]*)\})?\^?([a-zA-Z%]{1,2}?)`)

// apache is the text of Apache's LogFormat as one of nginx's: %h is ${%h}, whose field is known by
// that name.
func (r *Reader) apache(text string) string {
	text = directive.ReplaceAllStringFunc(strings.ReplaceAll(text, `\"`, `"`), func(found string) string {
		at := directive.FindStringSubmatch(found)
		argument, letter := at[1], at[2]
		switch {
		case letter == "%":
			return "%"
		case letter == "i":
			return "${http_" + strings.ReplaceAll(strings.ToLower(argument), "-", "_") + "}"
		case letter != "t":
			return "${%" + letter + argument + "}"
		case argument == "":
			return "[${%t}]"
		case strings.HasSuffix(argument, "sec_frac"):
			return "${%fraction}"
		case argument == "%z":
			return "${%zone}"
		}
		r.layouts += strftime.Replace(strings.TrimPrefix(strings.TrimPrefix(argument, "begin:"), "end:")) + "|"
		return "${%t}"
	})
	return strings.ReplaceAll(text, "${%U}${%q}", "${%path}")
}

// strftime are the layouts of package time for what strftime knows.
var strftime = strings.NewReplacer(strings.Fields("%F 2006-01-02 %T 15:04:05 %Y 2006 %y 06 %m 01 %d 02 %e _2 " +
	"%H 15 %I 03 %M 04 %S 05 %p PM %b Jan %B January %a Mon %A Monday %z -0700 %Z MST %D 01/02/06 %R 15:04")...)

// json reads one JSON object. Members of members have names with a dot. Names that are not known are
// left out; attributes stand in a member of their own.
func (r *Reader) json(f fields, line string, ev *Event) error {
	r.line, r.about = lineRead{}, &about{fields: f}
	object, err := decode(line)
	if err != nil {
		return err
	}
	r.about.object = object
	for _, of := range f {
		for _, name := range of[1:] {
			switch value := member(object, name).(type) {
			case nil, []any:
				continue
			case map[string]any:
				for key, value := range value {
					switch list, _ := value.([]any); of[0] {
					case "attributes":
						ev.Request.SetDefault(key, text(value))
					case "headers":
						for _, value := range list {
							r.header(ev, key, text(value))
						}
					}
				}
				continue
			default:
				said := text(value)
				if said == "" || said == "-" {
					continue
				}
				if err := r.set(r.kept[of[0]], of[0], said, ev); err != nil {
					return err
				}
			}
			break
		}
	}
	return r.end(ev)
}

// decode reads a line that is one JSON object.
func decode(line string) (object map[string]any, err error) {
	if !strings.HasPrefix(line, "{") {
		return nil, faultf("no JSON object")
	}
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber()
	var value any // which takes half the time of a map
	if err := d.Decode(&value); err != nil {
		return nil, errors.New(document.JSONFault(err))
	}
	if err := d.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	object, _ = value.(map[string]any)
	return object, nil
}

// member is a member of an object, or of a member of it, nil if there is none.
func member(object map[string]any, name string) any {
	if value, ok := object[name]; ok {
		return value
	}
	first, rest, more := strings.Cut(name, ".")
	if inner, ok := object[first].(map[string]any); ok && more {
		return member(inner, rest)
	}
	return nil
}

// text is a JSON value as a text, "" for null.
func text(value any) string {
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

// Columns are a table, whose first line names the columns, or in W3C each line that begins with
// #Fields.
type columns struct {
	reader *Reader
	kind   string
	about  about
	picked []string // the field of each column
}

// use takes the names of the columns.
func (t *columns) use(names []string) { t.about.names, t.picked = names, t.about.fields.pick(names) }

// split splits a line. CSV is read as RFC 4180 says only if it has a quote, which few lines have. W3C
// has blanks, or tabs, between columns.
func (t *columns) split(line string) ([]string, error) {
	switch {
	case t.kind == "csv" && strings.IndexByte(line, '"') >= 0:
		return csv.NewReader(strings.NewReader(line)).Read()
	case t.kind == "csv":
		return strings.Split(line, ","), nil
	case t.kind == "tsv" || strings.IndexByte(line, '\t') >= 0:
		return strings.Split(line, "\t"), nil
	default:
		return strings.Fields(line), nil
	}
}

// parse reads a line. One that repeats the names is where another file begins. Columns of CSV and
// TSV that are no field are attributes.
func (t *columns) parse(line string, ev *Event) error {
	r := t.reader
	if t.kind == "w3c" && strings.HasPrefix(line, "#") {
		if header, ok := strings.CutPrefix(line, "#Fields:"); ok {
			t.use(strings.Fields(header))
		}
		return errNoEvent
	}
	values, err := t.split(line)
	if err != nil {
		return err
	}
	r.line, r.about = lineRead{}, &t.about
	if slices.Equal(values, t.about.names) {
		return errNoEvent
	}
	if t.about.names == nil {
		for i := range values {
			values[i] = strings.TrimSpace(values[i])
		}
		r.about = &about{t.about.fields, values, nil}
		if t.kind == "w3c" {
			return faultf("no line with #Fields before it")
		}
		if t.use(values); !slices.Contains(t.picked, "time") {
			t.about.names = nil
			return r.lacks("time")
		}
		return errNoEvent
	}
	if len(values) != len(t.about.names) {
		return faultf("%d columns; expected %d", len(values), len(t.about.names))
	}
	for i, field := range t.picked {
		if field == "" && t.kind != "w3c" && t.about.names[i] != "-" && values[i] != "" {
			ev.Request.SetDefault(t.about.names[i], values[i])
		}
		if err := r.set(r.kept[field], field, values[i], ev); err != nil {
			return err
		}
	}
	return r.end(ev)
}
