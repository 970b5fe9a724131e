// Package spell spells the names of fields as documents do. The library's errors name fields as Go does; who wrote a
// document would not find them there.
package spell

import "strings"

// Document is the name of a field of a limit as rules and policies have it: max_debt for MaxDebt. Other text stays.
func Document(text string) string { return names.Replace(text) }

var names = strings.NewReplacer(
	"MaxDebt", "max_debt", "MinInterval", "min_interval", "CountDenied", "count_denied", "TimeZone", "timezone",
)
