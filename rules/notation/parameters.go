package notation

import (
	"fmt"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/document"
)

// field reads one field that the limit's algorithm has.
func (r *limitReader) field(f Field) {
	fault := func(v Value, allowed string) {
		r.bad[f.Name] = true
		r.faults.Invalid(r.path+"."+f.Name, v, allowed)
	}
	r.parameter(f.Name)(f.Value, fault)
}

// parameter is the setter of one of a limit's parameters. The ranges are left to
// [stint.Limit.Validate], but for max_debt.
func (r *limitReader) parameter(name string) Setter {
	limit := &r.limit
	switch name {
	case "name":
		return Text(&limit.Name)
	case "capacity", "limit":
		return permits(&limit.Capacity)
	case "refill", "leak":
		return rate(&limit.Rate)
	case "window":
		return duration(&limit.Window)
	case "min_interval":
		return duration(&limit.MinInterval)
	case "calendar":
		return calendar(&limit.Calendar)
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

func permits(field *int64) Setter {
	return document.Scalar(fmt.Sprintf("1 to %d", stint.MaxPermits), func(text string) bool {
		n, ok := document.ParseInteger(text)
		*field = n
		return ok
	}, KindInteger)
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

func rate(field *stint.Rate) Setter {
	_, none := stint.ParseRate("")
	return document.Scalar(allowed(none), func(text string) bool {
		rate, err := stint.ParseRate(text)
		*field = rate
		return err == nil
	}, KindText)
}

func duration(field *time.Duration) Setter {
	_, none := stint.ParseDuration("")
	return document.Scalar(allowed(none), func(text string) bool {
		d, err := stint.ParseDuration(text)
		*field = d
		return err == nil
	}, KindText, KindInteger)
}

func calendar(field *stint.Calendar) Setter {
	_, none := stint.ParseCalendar("")
	return document.Scalar(allowed(none), func(text string) bool {
		unit, err := stint.ParseCalendar(text)
		*field = unit
		return err == nil
	}, KindText)
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
