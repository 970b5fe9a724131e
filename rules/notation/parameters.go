package notation

import (
	"fmt"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/document"
)

// field reads one field that the limit's algorithm has.
func (r *limitReader) field(f Field) {
	r.parameter(f.Name)(f.Value, func(v Value, allowed string) {
		r.bad[f.Name] = true
		r.faults.Invalid(r.path+"."+f.Name, v, allowed)
	})
}

// parameter is the setter of one of a limit's parameters. The ranges are left to
// [stint.Limit.Validate], but for max_debt.
func (r *limitReader) parameter(name string) Setter {
	limit := &r.limit
	switch name {
	case "name":
		return Text(&limit.Name)
	case "capacity", "limit":
		return document.Scalar(fmt.Sprintf("1 to %d", stint.MaxPermits), func(text string) (ok bool) {
			limit.Capacity, ok = document.ParseInteger(text)
			return ok
		}, KindInteger)
	case "refill", "leak":
		return parsed(&limit.Rate, stint.ParseRate, KindText)
	case "window":
		return parsed(&limit.Window, stint.ParseDuration, KindText, KindInteger)
	case "min_interval":
		return parsed(&limit.MinInterval, stint.ParseDuration, KindText, KindInteger)
	case "calendar":
		return parsed(&limit.Calendar, stint.ParseCalendar, KindText)
	case "timezone":
		return Text(&limit.TimeZone)
	case "count_denied":
		return Boolean(&limit.CountDenied)
	case "max_debt":
		return maxDebt(&limit.MaxDebt)
	default:
		return lease(&limit.Lease)
	}
}

// parsed reads what a function parses, whose error says what is allowed.
func parsed[T any](field *T, parse func(text string) (T, error), kinds ...Kind) Setter {
	_, none := parse("")
	return document.Scalar(allowed(none), func(text string) (ok bool) {
		var err error
		*field, err = parse(text)
		return err == nil
	}, kinds...)
}

// maxDebt reads the bound on debt, of which 0 is none.
func maxDebt(field *int64) Setter {
	return document.Scalar(fmt.Sprintf("0 to %d", stint.MaxPermits), func(text string) bool {
		n, ok := document.ParseInteger(text)
		*field = n
		if n == 0 {
			*field = stint.NoDebt
		}
		return ok && n >= 0 && n <= stint.MaxPermits
	}, KindInteger)
}

// lease reads how many permits are leased at a time.
func lease(field *int64) Setter {
	return document.Scalar("auto, off, or 1 to the capacity", func(text string) bool {
		switch text {
		case "auto":
			*field = stint.LeaseAuto
		case "", "off", "false", "0":
			*field = 0
		default:
			n, ok := document.ParseInteger(text)
			*field = n
			return ok && n > 0
		}
		return true
	}, KindText, KindBoolean, KindInteger, KindNull)
}
