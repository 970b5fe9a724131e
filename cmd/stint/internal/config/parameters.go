package config

import (
	"fmt"
	"time"

	"github.com/stint-go/stint"
)

// field reads one field that the limit's algorithm has.
func (r *limitReader) field(f field) {
	fault := func(v value, allowed string) {
		r.bad[f.name] = true
		r.faults.invalid(r.path+"."+f.name, v, allowed)
	}
	r.parameter(f.name)(f.value, fault)
}

// parameter is the setter of one of a limit's parameters. The ranges are left to
// [stint.Limit.Validate], but for max_debt.
func (r *limitReader) parameter(name string) setter {
	limit := &r.limit
	switch name {
	case "name":
		return text(&limit.Name)
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
		return text(&limit.TimeZone)
	case "count_denied":
		return boolean(&limit.CountDenied)
	case "max_debt":
		return maxDebt(&limit.MaxDebt)
	default:
		return lease(&limit.Lease)
	}
}

func permits(field *int64) setter {
	return scalar(fmt.Sprintf("1 to %d", stint.MaxPermits), func(text string) bool {
		n, ok := parseInteger(text)
		*field = n
		return ok
	}, kindInteger)
}

// maxDebt reads the bound on debt, of which 0 is none.
func maxDebt(field *int64) setter {
	return scalar(fmt.Sprintf("0 to %d", stint.MaxPermits), func(text string) bool {
		n, ok := parseInteger(text)
		*field = n
		if n == 0 {
			*field = stint.NoDebt
		}
		return ok && n >= 0 && n <= stint.MaxPermits
	}, kindInteger)
}

func rate(field *stint.Rate) setter {
	_, none := stint.ParseRate("")
	return scalar(allowed(none), func(text string) bool {
		rate, err := stint.ParseRate(text)
		*field = rate
		return err == nil
	}, kindText)
}

func duration(field *time.Duration) setter {
	_, none := stint.ParseDuration("")
	return scalar(allowed(none), func(text string) bool {
		d, err := stint.ParseDuration(text)
		*field = d
		return err == nil
	}, kindText, kindInteger)
}

func calendar(field *stint.Calendar) setter {
	_, none := stint.ParseCalendar("")
	return scalar(allowed(none), func(text string) bool {
		unit, err := stint.ParseCalendar(text)
		*field = unit
		return err == nil
	}, kindText)
}

// lease reads how many permits are leased at a time.
func lease(field *int64) setter {
	return scalar("auto, off, or 1 to the capacity", func(text string) bool {
		switch text {
		case "auto":
			*field = stint.LeaseAuto
		case "", "off", "false", "0":
			*field = 0
		default:
			n, ok := parseInteger(text)
			*field = n
			return ok && n > 0
		}
		return true
	}, kindText, kindBoolean, kindInteger, kindNull)
}
