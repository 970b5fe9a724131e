package spell

import (
	"cmp"
	"slices"
	"unicode/utf8"
)

// Nearest is the name that a text is most likely meant to be: the one from which the fewest letters differ, at most two
// and fewer than half of the text's; "" if there is none. Two neighbours in each other's place count as one.
func Nearest(text string, names []string) string {
	const longest = 64 // no name is longer, and who sends more is not to be paid for
	if len(text) > longest {
		return ""
	}
	within := func(name string) int {
		if d := distance([]rune(text), []rune(name)); d <= 2 && 2*d < utf8.RuneCountInString(text) {
			return d
		}
		return longest
	}
	if len(names) == 0 {
		return ""
	}
	best := slices.MinFunc(names, func(a, b string) int { return cmp.Compare(within(a), within(b)) })
	if within(best) == longest {
		return ""
	}
	return best
}

// DidYouMean asks for the name that is [Nearest], behind what says that there is none of the text; "" if none is near.
func DidYouMean(text string, names []string) string {
	if best := Nearest(text, names); best != "" {
		return " (did you mean " + best + "?)"
	}
	return ""
}

// distance is how many letters have to be put in, left out, replaced or swapped with the next one to make b of a: the
// distance of optimal string alignment (Damerau 1964, without edits of what was swapped).
func distance(a, b []rune) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replaced := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			rows[i][j] = min(replaced, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
