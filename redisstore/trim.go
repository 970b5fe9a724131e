package redisstore

import (
	"regexp"
	"strings"
)

var (
	// defines matches the first line of a function at the top level of a script, or one
	// that gives a function another name, and finds the name's last part.
	defines     = regexp.MustCompile(`^(?:(?:local )?function (?:\w+\.)?(\w+)\(|\w+\.(\w+) = \w+\.\w+\n)`)
	identifiers = regexp.MustCompile(`\w+`)
)

// trim leaves functions out of a script that nothing in it calls, nor what is called.
// A function counts as called when its name stands anywhere else.
func trim(source string) string {
	type piece struct {
		name string // "" of what is no function
		text string
		kept bool
	}
	var pieces []piece
	for line := range strings.Lines(source) {
		last := len(pieces) - 1
		if last >= 0 && pieces[last].name != "" && !strings.HasSuffix(pieces[last].text, "\nend\n") && strings.Contains(pieces[last].text, "(") {
			pieces[last].text += line
			continue
		}
		name := ""
		if found := defines.FindStringSubmatch(line); found != nil {
			name = found[1] + found[2]
		}
		pieces = append(pieces, piece{name: name, text: line})
	}
	called := map[string]bool{"": true}
	for again := true; again; {
		again = false
		for i := range pieces {
			p := &pieces[i]
			if p.kept || !called[p.name] {
				continue
			}
			p.kept, again = true, true
			for _, word := range identifiers.FindAllString(p.text, -1) {
				called[word] = true
			}
		}
	}
	var kept strings.Builder
	for _, p := range pieces {
		if p.kept {
			kept.WriteString(p.text)
		}
	}
	return kept.String()
}
