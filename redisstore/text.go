package redisstore

import "strconv"

// small are numbers in text.
var small = func() (texts [1024]string) {
	for i := range texts {
		texts[i] = strconv.Itoa(i)
	}
	return texts
}()

func text(n int64) string {
	if n >= 0 && n < int64(len(small)) {
		return small[n]
	}
	return strconv.FormatInt(n, 10)
}

// takesText is how takes are sent.
func runsText(list []run) string {
	if len(list) == 0 {
		return ""
	}
	if len(list) == 1 && list[0].k == 1 {
		return text(list[0].n)
	}
	var buffer [64]byte
	line := buffer[:0]
	for i, t := range list {
		if i > 0 {
			line = append(line, ',')
		}
		line = strconv.AppendInt(line, t.n, 10)
		if t.k > 1 {
			line = append(line, 'x')
			line = strconv.AppendInt(line, t.k, 10)
		}
	}
	return string(line)
}
