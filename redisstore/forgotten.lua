-- Announces that a policy was forgotten.
--
-- KEYS[1]  a key of the store's, which is not touched
-- ARGV[1]  the channel
-- ARGV[2]  the announcement
--
-- Replies an empty string.

redis.call('PUBLISH', ARGV[1], ARGV[2])
return ''
