package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/stint-go/stint/internal/prefix"
)

// A wrapper is what writes something around each line of a log.
type wrapper struct {
	name string
	// before is what stands before the line. Its group, if it has one, is P if the line goes on in the next. Nil: the
	// line is a member of a JSON object.
	before *regexp.Regexp
}

const isoTime = `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*`

// wrappers are those that are known, in the order in which they are tried.
var wrappers = []wrapper{
	{"cri", regexp.MustCompile(`^` + isoTime + ` std(?:out|err) ([FP])(?::\S+)? `)},
	{"docker", nil},
	{"compose", regexp.MustCompile(`^[\w.-]+ +\| `)},
	{"kubectl", regexp.MustCompile(`^\[pod/[^\]]+\] `)},
	{"syslog", regexp.MustCompile(
		`^(?:<\d+>)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|` + isoTime + `) (?:\S+ )?[^\s:\[]+(?:\[\d+\])?: `)},
	{"syslog", regexp.MustCompile(`^<\d+>1 ` + isoTime + ` \S+ \S+ \S+ \S+ (?:-|(?:\[[^\]]*\])+) (?:\x{feff})?`)},
	{"timestamps", regexp.MustCompile(`^` + isoTime + ` `)},
}

// around is the parser of lines that the wrapper wrote.
func (w wrapper) around(inner parser) parser {
	begun := "" // of a line that comes in parts
	next := func(text string, ev *Event) error {
		if text = strings.TrimRight(text, "\r\n"); text == "" {
			return errNoEvent
		}
		return inner(text, ev)
	}
	return func(line string, ev *Event) error {
		if w.before == nil {
			object, err := decode(line)
			text, isText := cmp.Or(object["log"], object["message"]).(string)
			if err != nil || !isText {
				return faultf("no JSON object with a text log or message")
			}
			return next(text, ev)
		}
		at := w.before.FindStringSubmatchIndex(line)
		if at == nil {
			return faultf("no prefix of %s", w.name)
		}
		text := begun + line[at[1]:]
		if begun = ""; len(at) > 2 && line[at[2]] == 'P' && len(text) <= maxLine {
			begun = text
			return errNoEvent
		}
		return next(text, ev)
	}
}

// A score says how well a layout reads lines.
type score struct {
	layout
	read, lines, found int
	around             int    // how many wrappers are
	guess              int    // how well the layout looks like that of the lines, if it reads none
	first              string // that is not read
}

// try has a layout read lines, as long as it may read as many as the best so far.
func (r *Reader) try(l layout, lines []sampled, best int) (s score) {
	parse := l.new()
	s.layout = l
	if l.name == map[bool]string{true: "json", false: "combined"}[lines[0].text[0] == '{'] {
		s.guess = 1
	}
	for i, line := range lines {
		if s.read+len(lines)-i < best {
			break
		}
		ev := Event{Line: line.number}
		switch err := parse(line.text, &ev); {
		case errors.Is(err, errNoEvent): // such as the names of columns
			s.guess = 2
			continue
		case err == nil:
			s.read, s.found = s.read+1, s.found+r.line.found
		default:
			if s.first == "" {
				s.first = fmt.Sprintf("line %d: %v: %.200q", line.number, err, line.text)
			}
		}
		s.lines++
	}
	if s.read > 0 {
		s.guess = 0
	}
	return s
}

// before orders scores: by the lines that are read, then by what is known to be around them, then by
// the fields in them.
func (s *score) before(other *score) bool {
	return cmp.Or(cmp.Compare(s.read, other.read), cmp.Compare(min(s.read, s.around), min(s.read, other.around)),
		cmp.Compare(s.found, other.found), cmp.Compare(s.guess, other.guess)) > 0
}

// choose chooses the format of the lines that wait, and what is around them: the format that reads
// most of them, as they are or without what is known to be around lines.
func (r *Reader) choose() error {
	var best score
	var chain, around []wrapper
	for lines := r.sample; len(lines) > 0; {
		for i, l := range r.candidates {
			s := r.try(l, lines, best.read)
			if s.around = len(chain); i == 0 && len(chain) == 0 || s.before(&best) {
				best, around = s, chain
			}
		}
		if len(chain) == 3 {
			break
		}
		w, inner := unwrap(lines)
		chain, lines = append(chain[:len(chain):len(chain)], w), inner
	}
	if r.options.Format == "" && 2*best.read < max(1, best.lines) {
		if best.read == 0 {
			return prefix.Errorf("no line is a request in a format that is known; --format describes others. "+
				"The first, as %s: %s", best.name, best.first)
		}
		return prefix.Errorf("%d of the first %d lines are requests in the format %s; expected at least half, or --format. "+
			"The first that is not: %s", best.read, best.lines, best.name, best.first)
	}
	r.input.Format = best.name
	r.parse = best.new()
	for i := len(around) - 1; i >= 0; i-- {
		r.parse = around[i].around(r.parse)
		r.input.Wrapped = strings.TrimSuffix(around[i].name+", "+r.input.Wrapped, ", ")
	}
	return nil
}

// maxOthers is how many lines in a row without anything around them, at the begin, tell that nothing is.
const maxOthers = 64

// unwrap is what wrote something around at least half of some lines, and the lines without that, none
// if nothing did.
func unwrap(lines []sampled) (w wrapper, inner []sampled) {
	for _, w = range wrappers {
		inner = nil
		number := int64(0)
		cut := w.around(func(text string, _ *Event) error {
			inner = append(inner, sampled{number, text})
			return nil
		})
		others := 0
		for _, line := range lines {
			number = line.number
			if err := cut(line.text, nil); err != nil && !errors.Is(err, errNoEvent) {
				if others++; 2*others > len(lines) || others == maxOthers && inner == nil {
					others = len(lines)
					break
				}
			}
		}
		if 2*others <= len(lines) {
			return w, inner
		}
	}
	return w, nil
}
