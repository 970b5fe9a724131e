package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// PerNetwork is the scope that counts each network of so many bits of the client's address: of IPv4, 1 to 32, and of
// IPv6, 1 to the number by which clients are counted ([Options]). 0 is as [PerIP] has it. The clients are networks such
// as 192.0.2.0/24, and so are overrides' keys.
func PerNetwork(ipv4, ipv6 int) string {
	if ipv4 == 0 && ipv6 == 0 {
		return PerIP
	}
	return fmt.Sprintf("%s:%d/%d", PerIP, ipv4, ipv6)
}

// Networks are the numbers of a scope that [PerNetwork] returned, 0 and 0 of PerIP. It reports false for any other.
func Networks(scope string) (ipv4, ipv6 int, ok bool) {
	bits, networks := strings.CutPrefix(scope, PerIP+":")
	if !networks {
		return 0, 0, scope == PerIP
	}
	of4, of6, _ := strings.Cut(bits, "/")
	ipv4, err4 := strconv.Atoi(of4)
	ipv6, err6 := strconv.Atoi(of6)
	return ipv4, ipv6, err4 == nil && err6 == nil && PerNetwork(ipv4, ipv6) == scope &&
		ipv4 >= 0 && ipv4 <= 32 && ipv6 >= 0 && ipv6 <= 128
}

// addressPart is the place of the client's address in the scope; -1 without one.
func (r *Rule) addressPart() int { return slices.IndexFunc(r.Scope, isPerIP) }

func isPerIP(scope string) bool { return scope == PerIP || strings.HasPrefix(scope, PerIP+":") }

// masks are how many bits of an address count: of IPv4, and of IPv6, where 0 stands for any number.
type masks [2]int

// ipVersion is the place of an address' number of bits.
func ipVersion(address netip.Addr) int { return address.BitLen() / 128 }

// masks are how many bits of an address the rule counts, where IPv6 clients are counted by so many.
func (r *Rule) masks(bits int) masks {
	of := masks{32, bits}
	if at := r.addressPart(); at >= 0 {
		ipv4, ipv6, _ := Networks(r.Scope[at])
		of = masks{cmp.Or(ipv4, 32), cmp.Or(ipv6, bits)}
	}
	return of
}

// networkOf is the network of a client's address that the rule counts; what is no address stays.
func (p masks) networkOf(address string) string {
	host, _, _ := strings.Cut(address, "/")
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return address
	}
	return addressKey(ip, p[ipVersion(ip)])
}
