import assert from 'node:assert/strict'

// about compares seconds, of which some may have passed.
export const about = (got, want) => assert.ok(want - 30 <= got && got <= want, `got ${got}, want ${want}`)
