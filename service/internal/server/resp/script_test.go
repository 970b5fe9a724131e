package resp_test

import (
	"crypto/sha1" //nolint:gosec // G505: the protocol's
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint/service/internal/server/resp"
)

// oneLine is the script that most programs send.
const oneLine = "return redis.call('CL.THROTTLE', KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])"

// digest is the SHA-1 of a script, in hexadecimal digits.
func digest(text string) string {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // G401: the protocol's
	return hex.EncodeToString(sum[:])
}

// The grammar's forms, and what is none of them.
func TestScriptForms(t *testing.T) {
	t.Parallel()
	const list = ` "CL.THROTTLE" KEYS[1] ARGV[1] ARGV[2] ARGV[3] ARGV[4]`
	for text, want := range map[string]string{
		oneLine: "0 false" + list,
		`return redis.call("cl.throttle",KEYS[1],ARGV[1],ARGV[2],ARGV[3],ARGV[4])`:                            `0 false "cl.throttle" KEYS[1] ARGV[1] ARGV[2] ARGV[3] ARGV[4]`,
		"\n\treturn  redis.pcall ( 'CL.THROTTLE' , KEYS [ 1 ] ,ARGV[1],\r\nARGV[2], ARGV[3]);":                `0 false "CL.THROTTLE" KEYS[1] ARGV[1] ARGV[2] ARGV[3]`,
		strings.Replace(oneLine, ")", ")[1];", 1):                                                             "1 false" + list,
		"return{redis.call('CL.THROTTLE', KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])[5]}":                   "5 true" + list,
		"return redis.call('CL.THROTTLE', KEYS[1], tonumber(ARGV[1]), 030, '60', tonumber( tonumber(\"1\")))": `0 false "CL.THROTTLE" KEYS[1] ARGV[1] "30" "60" "1"`,
		"return redis.call('CL.THROTTLE', 'it is \"one\"', 15, 30, 60)":                                       `0 false "CL.THROTTLE" "it is \"one\"" "15" "30" "60"`,
	} {
		words, element, wrapped, ok := resp.ParseScript(text)
		if got := fmt.Sprint(element, wrapped, " ", strings.Join(words, " ")); !ok || got != want {
			t.Errorf("%q is %s, %v; want %s", text, got, ok, want)
		}
	}
	for _, text := range []string{
		"", "return", "return 1", "return redis.call('GET', KEYS[1])", "return redis.call('CL.THROTTLE')", "returnredis.call" + oneLine[len("return redis.call"):],
		oneLine + " return 1", oneLine + ";;", oneLine + "[0]", oneLine + "[6]", oneLine + "[1", "return {" + oneLine[len("return "):], oneLine + "}", oneLine + " -- all",
		strings.Replace(oneLine, "ARGV[4]", "ARGV[4], ARGV[5]", 1), strings.Replace(oneLine, ", ARGV[3], ARGV[4]", "", 1), strings.Replace(oneLine, "KEYS[1]", "KEYS[0]", 1),
		strings.Replace(oneLine, "KEYS[1]", "'a' .. KEYS[1]", 1), strings.Replace(oneLine, "KEYS[1]", `'\n'`, 1), strings.Replace(oneLine, "ARGV[4]", "-1", 1),
		strings.Replace(oneLine, "ARGV[4]", "1.5", 1), strings.Replace(oneLine, "'CL", "\"CL", 1), strings.Replace(oneLine, "'CL", "''CL", 1), strings.Replace(oneLine, "call", "acl", 1),
		strings.Replace(oneLine, "ARGV[4]", "tonumber(", 1), strings.Replace(oneLine, "ARGV[4]", "ARGV[KEYS[1]]", 1),
		"local key = KEYS[1] " + oneLine, strings.Replace(oneLine, "KEYS[1]", "KEYS[99999999999]", 1),
	} {
		if words, _, _, ok := resp.ParseScript(text); ok {
			t.Errorf("%q is a script: %s", text, words)
		}
	}
}

// The grammar, as expressions: strings, keys and arguments are put in one sign, and numbers made of those, too.
var (
	quoted   = regexp.MustCompile(`'[^'\\\n]*'|"[^"\\\n]*"`)
	given    = regexp.MustCompile(`(?:KEYS|ARGV)[ \t\r\n]*\[[ \t\r\n]*\d{1,10}[ \t\r\n]*\]`)
	isZero   = regexp.MustCompile(`\[[ \t\r\n]*0+[ \t\r\n]*\]`)
	tonumber = regexp.MustCompile(`tonumber[ \t\r\n]*\([ \t\r\n]*(?:\x00|\x01|\d{1,10})[ \t\r\n]*\)`)
	scripted = regexp.MustCompile(strings.NewReplacer("_", `[ \t\r\n]*`, "A", `(?:\x00|\x01|\d{1,10})`).Replace(
		`^_return(?:_(\{)|[ \t\r\n])_redis\.p?call_\(_\x01(?:_,_A){4,5}_\)_(?:\[_0*[1-5]_\])?_(\}?)_;?_$`))
)

// isScript reports whether a text is one, in another way than the product.
func isScript(text string) bool {
	if strings.ContainsAny(text, "\x00\x01") {
		return false
	}
	text = quoted.ReplaceAllStringFunc(text, func(s string) string {
		if strings.EqualFold(s[1:len(s)-1], "CL.THROTTLE") {
			return "\x01"
		}
		return "\x00"
	})
	text = given.ReplaceAllStringFunc(text, func(s string) string {
		if isZero.MatchString(s) {
			return s
		}
		return "\x00"
	})
	for tonumber.MatchString(text) {
		text = tonumber.ReplaceAllStringFunc(text, func(s string) string {
			if strings.Contains(s, "\x01") {
				return "\x01"
			}
			return "\x00"
		})
	}
	braces := scripted.FindStringSubmatch(text)
	return braces != nil && (braces[1] == "{") == (braces[2] == "}")
}

// FuzzScript compares what the parser takes for a script with expressions, and reads what it has read again.
func FuzzScript(f *testing.F) {
	for _, seed := range []string{
		oneLine, oneLine + "[1];", "return {" + oneLine[len("return "):] + "[2] }", `return redis.pcall("cl.throttle",'a',1,tonumber(ARGV[2]),"3" )`, "return '\x00'",
		"return redis.call(tonumber('CL.THROTTLE'),KEYS[1],1,2,3", `return redis.call('CL.THROTTLE', 'a\'', 1, 2, 3)`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		words, element, wrapped, ok := resp.ParseScript(text)
		if want := isScript(text); ok != want && !strings.ContainsAny(text, "\x00\x01") {
			t.Fatalf("%q is a script: %v, want %v", text, ok, want)
		}
		if !ok || strings.Contains(strings.Join(words, ""), `\`) {
			return
		}
		again := "return redis.call(" + strings.Join(words, ",") + ")"
		if element > 0 {
			again += fmt.Sprintf("[%d]", element)
		}
		if wrapped {
			again = "return {" + again[len("return "):] + "}"
		}
		same, e, w, ok := resp.ParseScript(again)
		if !ok || strings.Join(same, " ") != strings.Join(words, " ") || e != element || w != wrapped {
			t.Fatalf("%q is %q, which is %q %d %v", text, again, same, e, w)
		}
	})
}

// A hundred loaded scripts stay. Those of EVAL are forgotten when there are a hundred of them, and are sent again.
func TestManyScripts(t *testing.T) {
	t.Parallel()
	config := fakeConfig(t, io.Discard, false, false)
	script := func(i int) string { return fmt.Sprintf("return redis.call('CL.THROTTLE', 'key-%d', 9, 1, 3600)", i) }
	var text strings.Builder
	exist := []string{"SCRIPT", "EXISTS"}
	for i := range 310 { // the first 60 are loaded
		if i < 60 {
			text.WriteString(command("SCRIPT", "LOAD", script(i)))
		} else {
			text.WriteString(command("EVAL", script(i), "0"))
		}
		exist = append(exist, digest(script(i)))
	}
	text.WriteString(command(exist...))
	for i := range 60 { // others, of which 40 have room
		text.WriteString(command("SCRIPT", "LOAD", script(1000+i)))
	}
	text.WriteString(command("SCRIPT", "LOAD", script(0)) + command("EVALSHA", digest(script(0)), "0"))
	_, answers, _ := strings.Cut(converse(t, config, text.String()), "*310\r\n")
	known := strings.Join(strings.SplitAfterN(answers, "\r\n", 311)[:310], "")
	if want := strings.Repeat(":1\r\n", 60) + strings.Repeat(":0\r\n", 200) + strings.Repeat(":1\r\n", 50); known != want {
		t.Errorf("of 310 scripts these are known: %q", known)
	}
	if n := strings.Count(answers, "-ERR stint: SCRIPT LOAD is \"one more\"; allowed: 100 scripts, until SCRIPT FLUSH\r\n"); n != 20 {
		t.Errorf("%d of 60 scripts have no room, want 20:\n%s", n, answers)
	}
	if want := "$40\r\n" + digest(script(0)) + "\r\n*5\r\n:0\r\n:10\r\n:9\r\n:-1\r\n:3600\r\n+OK\r\n"; !strings.HasSuffix(answers, want) {
		t.Errorf("a loaded script is answered %q", answers[max(0, len(answers)-100):])
	}
}
