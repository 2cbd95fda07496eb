-- Rows that change often: dead versions go before they pile up, however large the table has become.

ALTER TABLE sandboxd.sandboxes SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000);
ALTER TABLE sandboxd.executions SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000);
ALTER TABLE sandboxd.sandbox_events SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000);
ALTER TABLE sandboxd.warm_members SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
