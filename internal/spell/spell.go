// Package spell spells names as their readers do: those of fields as documents have them, since the library's errors
// name fields as Go does, and those that were mistyped.
package spell

import "strings"

// Document is the name of a field of a limit as rules and policies have it: max_debt for MaxDebt. Other text stays.
func Document(text string) string { return names.Replace(text) }

var names = strings.NewReplacer(
	"MaxDebt", "max_debt", "MinInterval", "min_interval", "CountDenied", "count_denied", "TimeZone", "timezone",
)
