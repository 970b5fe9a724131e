package redisstore

import "strings"

// piece is a part of a script's source at its top level.
type piece struct {
	name string // what it defines, without the table that it is in; "" of what is always kept
	text string
	open bool // whether the function's end is to come
	kept bool
}

// trim leaves out of a script what need not travel: comments, blank lines, and functions
// and values at its top level whose names stand nowhere else.
func stripUnused(source string) string {
	pieces := piecesOf(source)
	called := map[string]bool{"": true}
	for again := true; again; {
		again = false
		for i := range pieces {
			if p := &pieces[i]; !p.kept && called[p.name] {
				p.kept, again = true, true
				for word := range strings.FieldsFuncSeq(p.text, outsideWord) {
					called[word] = true
				}
			}
		}
	}
	var kept strings.Builder
	for i := range pieces {
		if pieces[i].kept {
			kept.WriteString(pieces[i].text)
		}
	}
	return kept.String()
}

// piecesOf takes a source apart, line by line.
func piecesOf(source string) (pieces []piece) {
	for from, end := 0, 0; from < len(source); from = end {
		end = from + strings.IndexByte(source[from:], '\n') + 1
		if end == from {
			end = len(source)
		}
		line := source[from:end]
		bare := strings.TrimLeft(line, " \t")
		if bare == "\n" || strings.HasPrefix(bare, "--") {
			continue
		}
		if last := len(pieces) - 1; last >= 0 && pieces[last].open {
			pieces[last].text += line
			pieces[last].open = line != "end\n"
			continue
		}
		name, open := defines(line)
		pieces = append(pieces, piece{name: name, text: line, open: open})
	}
	return pieces
}

// defines returns the last part of the name of the function that a line starts, or of what it
// names without calling anything, as in "twin.step = schedule.step" and "local most = 2 ^ 53"; open
// says that a function's body follows.
func defines(line string) (name string, open bool) {
	rest := strings.TrimPrefix(line, "local ")
	if head, found := strings.CutPrefix(rest, "function "); found {
		name, _, _ = strings.Cut(head, "(")
		return name[strings.LastIndexByte(name, '.')+1:], true
	}
	left, right, found := strings.Cut(strings.TrimSuffix(line, "\n"), " = ")
	if name, local := strings.CutPrefix(left, "local "); local && found && !strings.ContainsFunc(name, outsideWord) && !strings.Contains(right, "(") {
		return name, false
	}
	_, name, field := strings.Cut(left, ".")
	if _, of, another := strings.Cut(right, "."); !found || !field || !another || strings.ContainsFunc(name+of, outsideWord) {
		return "", false
	}
	return name, false
}

func outsideWord(r rune) bool {
	return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}
