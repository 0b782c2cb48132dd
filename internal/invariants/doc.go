// Package invariants says whether this build checks what must hold after every
// step (go build -tags invariants). Checks cost time; production builds leave
// them out.
package invariants
